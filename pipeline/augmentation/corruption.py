"""Ops that make an image worse, as cameras and messengers do: blur, noise, JPEG artifacts, erasing.

They are arithmetic on whole batches and compile with XLA, except `JpegArtifacts`: its codec runs on
the CPU only and has no XLA kernel. With `jit_compile=True`, and on a TPU, use it on the host.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline.augmentation.checks import Interval, check_interval
from pipeline.augmentation.photometric import PhotometricOp, blend, on_channels, per_image
from pipeline.augmentation.pixels import to_float32, to_uint8
from pipeline.augmentation.stateless_random import fold_in, log_uniform, uniform


@dataclass(frozen=True, kw_only=True)
class Blur(PhotometricOp):
    """Blurs with a Gaussian filter, like a camera out of focus.

    Attributes:
      sigma: standard deviation in pixels.
    """

    sigma: Interval = (0.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("sigma", self.sigma, minimum=0, maximum=4)

    def change(self, image: tf.Tensor, seeds: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        # The binomial filter has variance 1/2. Applied again and again, the last time in part, it
        # gives each image its own variance with one filter for all.
        variance = per_image(uniform(seeds, 0, self.sigma) ** 2, chosen, neutral=0.0)
        for step in range(math.ceil(2 * self.sigma[1] ** 2)):
            share = tf.clip_by_value(2 * variance - step, 0.0, 1.0)
            image = image + share * (_binomial(image) - image)
        return image


@dataclass(frozen=True, kw_only=True)
class Noise(PhotometricOp):
    """Adds Gaussian noise, independent for each pixel and channel.

    Attributes:
      deviation: standard deviation; the distance from black to white is 1.
    """

    deviation: Interval = (0.0, 0.06)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("deviation", self.deviation, minimum=0, maximum=1)

    def draw(
        self, seeds: tf.Tensor, chosen: tf.Tensor, shape: Sequence[int]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws the noise of images.

        Args:
          seeds: int64 [n].
          chosen: bool [n].
          shape: (height, width, channels) of the images.

        Returns:
          Deviations, float32 [n, 1, 1, 1], and noise of deviation 1, float16 [n, numbers], at least
          as many numbers as an image has.
        """
        deviation = per_image(uniform(seeds, 0, self.deviation), chosen, neutral=0.0)
        # Drawing a normal number for each pixel takes longer than all other ops together. Rows of a
        # table, in a random order for each image, look the same.
        table = tf.constant(_normal_table())
        rows, row_length = table.shape
        numbers = tf.range(math.ceil(math.prod(shape) / row_length), dtype=tf.int64)
        order = fold_in(fold_in(seeds, 1)[:, None], numbers) % rows
        return deviation, tf.reshape(tf.gather(table, order), [-1, numbers.shape[0] * row_length])

    def change(self, image: tf.Tensor, seeds: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        shape = image.shape[1:].as_list()
        return add_noise(image, *self.draw(seeds, chosen, shape))


@dataclass(frozen=True, kw_only=True)
class JpegArtifacts(PhotometricOp):
    """Encodes as JPEG and decodes again.

    Attributes:
      quality: of the codec, 1 to 100; below 30, blocks are easy to see.
    """

    quality: tuple[int, int] = (20, 85)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("quality", self.quality, minimum=1, maximum=100)

    def change(self, image: tf.Tensor, seeds: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        low, high = self.quality
        quality = tf.cast(tf.floor(uniform(seeds, 0, (low, high + 1))), tf.int32)
        channels = image.shape[3]

        def recode(pixels: tf.Tensor, quality: tf.Tensor) -> tf.Tensor:
            encoded = tf.raw_ops.EncodeJpegVariableQuality(images=pixels, quality=quality)
            return tf.io.decode_jpeg(encoded, channels=channels)

        # The codec takes one image at a time.
        recoded = tf.map_fn(
            lambda image: tf.cond(image[2], lambda: recode(image[0], image[1]), lambda: image[0]),
            (to_uint8(image), quality, chosen),
            fn_output_signature=tf.TensorSpec(image.shape[1:], tf.uint8),
        )
        return blend(image, to_float32(recoded), per_image(tf.ones_like(seeds), chosen))


@dataclass(frozen=True, kw_only=True)
class Erase(PhotometricOp):
    """Paints a random rectangle in one gray: a thumb, a sticker, a torn corner.

    Boxes stay as they are: the text under the rectangle is still the label.

    Attributes:
      area: area of the rectangle, as a fraction of the image's.
      aspect: width of the rectangle divided by its height.
      gray: gray level, from 0 (black) to 1 (white).
    """

    area: Interval = (0.01, 0.06)
    aspect: Interval = (0.4, 2.5)
    gray: Interval = (0.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("area", self.area, minimum=0, maximum=1)
        check_interval("aspect", self.aspect, minimum=0.01, maximum=100)
        check_interval("gray", self.gray, minimum=0, maximum=1)

    def change(self, image: tf.Tensor, seeds: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        height, width = image.shape[1:3]
        area = uniform(seeds, 0, self.area) * (height * width)
        aspect = log_uniform(seeds, 1, self.aspect)
        rows = _span(height, tf.sqrt(area / aspect), uniform(seeds, 2))
        columns = _span(width, tf.sqrt(area * aspect), uniform(seeds, 3))
        inside = (rows & chosen[:, None])[:, :, None, None] & columns[:, None, :, None]
        inside = on_channels(tf.cast(inside, tf.float32), image)
        return blend(image, per_image(uniform(seeds, 4, self.gray)), inside)


def add_noise(image: tf.Tensor, deviation: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Adds what `Noise.draw` draws to images, float32 [n, height, width, channels]."""
    size = tf.math.reduce_prod(tf.shape(image)[1:])
    noise = tf.reshape(numbers[:, :size], tf.shape(image))
    return image + deviation * tf.cast(noise, tf.float32)


def _span(length: int, wanted: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
    """Masks `wanted` neighboring pixels, rounded to 0 … length, from a position in 0…1.

    Returns:
      bool [n, length].
    """
    size = tf.minimum(tf.round(wanted), length)
    start = tf.floor(position * (length - size + 1))[:, None]
    pixels = tf.range(length, dtype=tf.float64)
    return (pixels >= start) & (pixels < start + size[:, None])


def _binomial(image: tf.Tensor) -> tf.Tensor:
    """Filters with 1 2 1 along height and width."""
    # Slices are five times as fast as a convolution.
    tall = tf.concat([image[:, :1], image, image[:, -1:]], axis=1)
    rows = tall[:, :-2] + tall[:, 2:] + 2 * image
    wide = tf.concat([rows[:, :, :1], rows, rows[:, :, -1:]], axis=2)
    return (wide[:, :, :-2] + wide[:, :, 2:] + 2 * rows) * (1 / 16)


@functools.cache
def _normal_table() -> npt.NDArray[np.float16]:
    """Makes half a megabyte of normal numbers, float16 [1024, 256]."""
    # NumPy promises that the numbers of RandomState never change. float16 has three digits of them,
    # which is enough for noise, and half the bytes to copy for each image.
    return np.random.RandomState(0).standard_normal((1024, 256)).astype(np.float16)
