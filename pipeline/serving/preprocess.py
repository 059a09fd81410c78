"""Image files to the inputs of a model, in the graph: as the build and the input pipeline would."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.input.decode import decode_jpeg, fit_image, fitted, jpeg_image, raw_images
from pipeline.records.info import DatasetInfo
from pipeline.serving.exif import orientation, upright

_WHITE = 255.0
_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, as in JPEG files


def read_image(file: tf.Tensor, info: DatasetInfo, config: InputConfig) -> tf.Tensor:
    """What a model trained on a dataset is to see of an image file.

    The file is first turned, shrunk and encoded as the dataset's records were, and then decoded as
    they are. The build also turns PNG files by their EXIF orientation, and converts colours by
    their profiles; here, both are ignored.

    Args:
      file: JPEG or PNG file, string [].
      info: the dataset, whose build options count.
      config: the model's inputs.

    Returns:
      uint8 [height, width, channels].
    """
    stored = info.manifest.build_options["image"]
    if stored["encoding"] == "raw":
        return raw_images(_raw(file, stored)[None], config)[0]
    encoded = _stored_jpeg(file, stored)
    return jpeg_image(encoded, tf.image.extract_jpeg_shape(encoded)[:2], config)


def _stored_jpeg(file: tf.Tensor, stored: Mapping[str, Any]) -> tf.Tensor:
    """As the build stores it: what is small, upright and of the right colours is kept."""
    channels, most = stored["channels"], stored["max_side"]

    def shrunk(pixels: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        inner = _within(size, most)
        return tf.io.encode_jpeg(_resample(pixels, inner), quality=stored["quality"])

    def jpeg() -> tf.Tensor:
        shape = tf.image.extract_jpeg_shape(file)
        size, turn = shape[:2], orientation(file)

        def converted() -> tf.Tensor:
            pixels = decode_jpeg(file, size, _within(size, most), channels or 3)
            transposed = tf.where(turn >= 5, size[::-1], size)
            return shrunk(upright(pixels, turn), transposed)

        right = tf.reduce_any(shape[2] == tf.constant([channels] if channels else [1, 3]))
        kept = (tf.reduce_max(size) <= most) & (turn == 1) & right
        return tf.cond(kept, lambda: file, converted)

    def png() -> tf.Tensor:
        pixels = _png(file, channels or 3)
        return shrunk(pixels, tf.shape(pixels)[:2])

    return tf.cond(tf.io.is_jpeg(file), jpeg, png)


def _raw(file: tf.Tensor, stored: Mapping[str, Any]) -> tf.Tensor:
    """As the build stores pixels of one size."""
    height, width = stored["raw_size"]
    config = InputConfig(height=height, width=width, channels=stored["channels"], fit=stored["fit"])
    pixels = tf.cond(
        tf.io.is_jpeg(file),
        lambda: upright(tf.io.decode_jpeg(file, config.channels), orientation(file)),
        lambda: _png(file, config.channels),
    )
    inner, before = fitted(tf.shape(pixels)[:2], config)
    return fit_image(_resample(pixels, inner), inner, before, config)


def _png(file: tf.Tensor, channels: int) -> tf.Tensor:
    """Pixels of a PNG file on white."""
    rgba = tf.cast(tf.io.decode_png(file, channels=4), tf.float32)
    opaque = rgba[..., 3:] / 255
    pixels = tf.round(rgba[..., :3] * opaque + _WHITE * (1 - opaque))
    if channels == 1:
        pixels = tf.round(tf.tensordot(pixels, tf.constant(_LUMA)[:, None], 1))
    return tf.saturate_cast(pixels, tf.uint8)


def _within(size: tf.Tensor, most: int) -> tf.Tensor:
    """(height, width), int32 [2], scaled down so that the longer is at most `most`."""
    scale = tf.minimum(most / tf.reduce_max(size), 1)
    return tf.maximum(tf.cast(tf.round(tf.cast(size, tf.float64) * scale), tf.int32), 1)


def _resample(pixels: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """To another size as the build does, with Lanczos' filter over all that goes into a pixel."""
    resized = tf.image.resize(pixels, size, method="lanczos3", antialias=True)
    return tf.saturate_cast(tf.round(resized), tf.uint8)
