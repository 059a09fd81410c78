"""Conversions between pixels of dtype uint8 and float32 in 0…1.

They lie here, below everything that decodes, augments, evaluates or serves images.
"""

import tensorflow as tf


def to_float32(pixels: tf.Tensor) -> tf.Tensor:
    """Converts uint8 to float32 in 0…1 on any device; returns float32 as it is."""
    return tf.cast(pixels, tf.float32) * (1 / 255) if pixels.dtype == tf.uint8 else pixels


def to_float32_on_cpu(pixels: tf.Tensor) -> tf.Tensor:
    """Converts uint8 to the same numbers as `to_float32`, in one pass instead of two.

    The op behind it has no kernel for GPUs.
    """
    return tf.quantization.dequantize(tf.bitcast(pixels, tf.quint8), 0.0, 1.0, mode="MIN_COMBINED")


def to_uint8(image: tf.Tensor) -> tf.Tensor:
    """Converts float32 in 0…1 to uint8, rounded."""
    # Numbers are positive, so that cutting off after adding a half rounds; tf.round is slower.
    return tf.cast(image * 255 + 0.5, tf.uint8)
