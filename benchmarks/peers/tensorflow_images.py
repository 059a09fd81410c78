"""Images as TensorFlow's guides decode them."""

import tensorflow as tf

from benchmarks.peers.output import Output


def decoded(encoded: tf.Tensor, output: Output) -> tf.Tensor:
    """A JPEG file, string [], to [height, width, channels]."""
    return resized(tf.io.decode_jpeg(encoded, channels=output.channels), output)


def resized(pixels: tf.Tensor, output: Output) -> tf.Tensor:
    """Pixels, uint8 [height, width, channels], fitted into the output's size and type."""
    size = (output.height, output.width)
    scaled = tf.image.resize(pixels, size, preserve_aspect_ratio=output.fit == "pad")
    if output.fit == "pad":
        missing = tf.constant(size) - tf.shape(scaled)[:2]
        sides = tf.stack([missing // 2, missing - missing // 2], axis=-1)
        scaled = tf.pad(scaled, tf.concat([sides, [[0, 0]]], 0), constant_values=255)
        scaled = tf.ensure_shape(scaled, output.shape[1:])
    if output.dtype == "uint8":
        return tf.saturate_cast(tf.round(scaled), tf.uint8)
    return scaled / 255
