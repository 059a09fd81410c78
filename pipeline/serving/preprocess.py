"""Converts image files to inputs of a model, in the graph, as build and input pipeline would."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.input.decode import decode_jpeg, jpeg_image, raw_images
from pipeline.input.fit import fit_image, fit_rectangle
from pipeline.records.info import DatasetInfo
from pipeline.serving.exif import orientation, upright
from schemas.manifest import image_form

_WHITE = 255.0
_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, as in JPEG files


def read_image(file: tf.Tensor, info: DatasetInfo, config: InputConfig) -> tf.Tensor:
    """Converts an image file to what a model sees of a record made of the same file.

    The file is turned, shrunk and encoded like the records of the dataset, and decoded like them.
    The build also turns PNG files by their EXIF orientation, and converts colors by their profiles;
    here, both are ignored.

    Args:
      file: JPEG or PNG file, string [].
      info: the dataset on which the model was trained, with its build options.
      config: inputs of the model.

    Returns:
      uint8 [height, width, channels].
    """
    stored = image_form(info.manifest.build_options["image"])
    if stored["encoding"] == "raw":
        return raw_images(_raw(file, stored)[None], config)[0]
    encoded = _stored_jpeg(file, stored)
    return jpeg_image(encoded, tf.image.extract_jpeg_shape(encoded)[:2], config)


def _stored_jpeg(file: tf.Tensor, stored: Mapping[str, Any]) -> tf.Tensor:
    """Converts a file to the JPEG file that the build stores.

    JPEG files that are small, upright and of the right number of channels are kept as they are.
    """
    channels, max_side, full_decode = (
        stored[name] for name in ("channels", "max_side", "full_decode")
    )

    def shrunk(pixels: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        inner = _within(size, max_side)
        return tf.io.encode_jpeg(_resample(pixels, inner), quality=stored["quality"])

    def jpeg() -> tf.Tensor:
        shape = tf.image.extract_jpeg_shape(file)
        size, turn = shape[:2], orientation(file)

        def converted() -> tf.Tensor:
            if full_decode:
                pixels = tf.io.decode_jpeg(file, channels or 3)
            else:
                pixels = decode_jpeg(file, size, _within(size, max_side), channels or 3)
            # Orientations 5 to 8 of EXIF exchange height and width.
            transposed = tf.where(turn >= 5, size[::-1], size)
            return shrunk(upright(pixels, turn), transposed)

        right = tf.reduce_any(shape[2] == tf.constant([channels] if channels else [1, 3]))
        kept = (tf.reduce_max(size) <= max_side) & (turn == 1) & right
        return tf.cond(kept, lambda: file, converted)

    def png() -> tf.Tensor:
        pixels = _png(file, channels or 3)
        return shrunk(pixels, tf.shape(pixels)[:2])

    return tf.cond(tf.io.is_jpeg(file), jpeg, png)


def _raw(file: tf.Tensor, stored: Mapping[str, Any]) -> tf.Tensor:
    """Converts a file to the pixels that the build stores, uint8 [height, width, channels]."""
    height, width = stored["raw_size"]
    config = InputConfig(height=height, width=width, channels=stored["channels"], fit=stored["fit"])
    pixels = tf.cond(
        tf.io.is_jpeg(file),
        lambda: upright(tf.io.decode_jpeg(file, config.channels), orientation(file)),
        lambda: _png(file, config.channels),
    )
    inner, before = fit_rectangle(tf.shape(pixels)[:2], config)
    return fit_image(_resample(pixels, inner), inner, before, config)


def _png(file: tf.Tensor, channels: int) -> tf.Tensor:
    """Decodes a PNG file on white, to uint8 [height, width, channels]."""
    rgba = tf.cast(tf.io.decode_png(file, channels=4), tf.float32)
    opaque = rgba[..., 3:] / 255
    pixels = tf.round(rgba[..., :3] * opaque + _WHITE * (1 - opaque))
    if channels == 1:
        pixels = tf.round(tf.tensordot(pixels, tf.constant(_LUMA)[:, None], 1))
    return tf.saturate_cast(pixels, tf.uint8)


def _within(size: tf.Tensor, max_side: int) -> tf.Tensor:
    """Scales (height, width), int32 [2], down so that the longer side is at most `max_side`."""
    # The same arithmetic as in `beam_jobs.images.image`: tf.round, too, rounds halves to even.
    scale = tf.minimum(max_side / tf.reduce_max(size), 1)
    return tf.maximum(tf.cast(tf.round(tf.cast(size, tf.float64) * scale), tf.int32), 1)


def _resample(pixels: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Resizes like the build, with a Lanczos filter over all pixels that one is made of."""
    resized = tf.image.resize(pixels, size, method="lanczos3", antialias=True)
    return tf.saturate_cast(tf.round(resized), tf.uint8)
