"""Ops that make an image worse, as cameras and messengers do: blur, noise, JPEG artefacts, erasing.

Arithmetic on whole batches that compiles with XLA, but for `JpegArtefacts`: its codec runs on the
CPU only and has no XLA kernel, so with `jit_compile=True`, and on a TPU, it belongs on the host.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline.augmentation.photometric import PhotometricOp, blend, on_channels, per_image
from pipeline.augmentation.stateless_random import (
    Interval,
    check_interval,
    fold_in,
    log_uniform,
    uniform,
)


@dataclass(frozen=True, kw_only=True)
class Blur(PhotometricOp):
    """Gaussian blur, as of a camera out of focus.

    Attributes:
      sigma: standard deviation in pixels.
    """

    sigma: Interval = (0.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("sigma", self.sigma, least=0, most=4)

    def change(self, image: Any, seeds: Any, chosen: Any) -> Any:
        # The binomial filter has variance 1/2. Applied again and again, the last time in part, it
        # gives each image its own variance with one filter for all.
        variance = per_image(uniform(seeds, 0, self.sigma) ** 2, chosen, neutral=0.0)
        for step in range(math.ceil(2 * self.sigma[1] ** 2)):
            share = tf.clip_by_value(2 * variance - step, 0.0, 1.0)
            image = image + share * (_binomial(image) - image)
        return image


@dataclass(frozen=True, kw_only=True)
class Noise(PhotometricOp):
    """Gaussian noise, of its own in each pixel and channel.

    Attributes:
      deviation: standard deviation; 1 is the way from black to white.
    """

    deviation: Interval = (0.0, 0.06)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("deviation", self.deviation, least=0, most=1)

    def change(self, image: Any, seeds: Any, chosen: Any) -> Any:
        deviation = per_image(uniform(seeds, 0, self.deviation), chosen, neutral=0.0)
        # Drawing a normal number for each pixel takes longer than all other ops together; rows of
        # a table in an order of the image's own look no different.
        table = tf.constant(_normal_table())
        rows, row_length = table.shape
        size = math.prod(image.shape[1:])
        numbers = tf.range(math.ceil(size / row_length), dtype=tf.int64)
        order = fold_in(fold_in(seeds, 1)[:, None], numbers) % rows
        noise = tf.reshape(tf.gather(table, order), [-1, numbers.shape[0] * row_length])[:, :size]
        return image + deviation * tf.reshape(noise, [-1, *image.shape[1:]])


@dataclass(frozen=True, kw_only=True)
class JpegArtefacts(PhotometricOp):
    """Encodes as JPEG and decodes again.

    Attributes:
      quality: as the codec counts it; below 30 blocks are plain to see.
    """

    quality: tuple[int, int] = (20, 85)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("quality", self.quality, least=1, most=100)

    def change(self, image: Any, seeds: Any, chosen: Any) -> Any:
        low, high = self.quality
        quality = tf.cast(tf.floor(uniform(seeds, 0, (low, high + 1))), tf.int32)
        channels = image.shape[3]

        def recode(pixels: Any, quality: Any) -> Any:
            encoded = tf.raw_ops.EncodeJpegVariableQuality(images=pixels, quality=quality)
            return tf.io.decode_jpeg(encoded, channels=channels)

        # The codec takes one image at a time.
        recoded = tf.map_fn(
            lambda each: tf.cond(each[2], lambda: recode(each[0], each[1]), lambda: each[0]),
            (tf.cast(image * 255 + 0.5, tf.uint8), quality, chosen),
            fn_output_signature=tf.TensorSpec(image.shape[1:], tf.uint8),
        )
        recoded = tf.cast(recoded, tf.float32) * (1 / 255)
        return blend(image, recoded, per_image(tf.ones_like(seeds), chosen))


@dataclass(frozen=True, kw_only=True)
class Erase(PhotometricOp):
    """Paints a random rectangle in one grey: a thumb, a sticker, a torn corner.

    Boxes stay: what is written there is still the label of the place.

    Attributes:
      area: of the rectangle, as a fraction of the image.
      aspect: width to height.
      grey: 0 is black, 1 white.
    """

    area: Interval = (0.01, 0.06)
    aspect: Interval = (0.4, 2.5)
    grey: Interval = (0.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("area", self.area, least=0, most=1)
        check_interval("aspect", self.aspect, least=0.01, most=100)
        check_interval("grey", self.grey, least=0, most=1)

    def change(self, image: Any, seeds: Any, chosen: Any) -> Any:
        height, width = image.shape[1:3]
        area = uniform(seeds, 0, self.area) * (height * width)
        aspect = log_uniform(seeds, 1, self.aspect)
        rows = _span(height, tf.sqrt(area / aspect), uniform(seeds, 2))
        columns = _span(width, tf.sqrt(area * aspect), uniform(seeds, 3))
        inside = (rows & chosen[:, None])[:, :, None, None] & columns[:, None, :, None]
        inside = on_channels(tf.cast(inside, tf.float32), image)
        return blend(image, per_image(uniform(seeds, 4, self.grey)), inside)


def _span(length: int, wanted: Any, position: Any) -> Any:
    """Bool [n, length]: a run of `wanted` pixels, rounded, at least 0 of them and at most all."""
    size = tf.minimum(tf.round(wanted), length)
    start = tf.floor(position * (length - size + 1))[:, None]
    pixels = tf.range(length, dtype=tf.float64)
    return (pixels >= start) & (pixels < start + size[:, None])


def _binomial(image: Any) -> Any:
    """The filter 1 2 1 along height and width. Slices are five times as fast as a convolution."""
    tall = tf.concat([image[:, :1], image, image[:, -1:]], axis=1)
    rows = tall[:, :-2] + tall[:, 2:] + 2 * image
    wide = tf.concat([rows[:, :, :1], rows, rows[:, :, -1:]], axis=2)
    return (wide[:, :, :-2] + wide[:, :, 2:] + 2 * rows) * (1 / 16)


@functools.cache
def _normal_table() -> npt.NDArray[np.float32]:
    """A megabyte of normal numbers; RandomState's are promised never to change."""
    return np.random.RandomState(0).standard_normal((4096, 64)).astype(np.float32)
