"""Images as TensorFlow's guides decode them."""

import tensorflow as tf

from benchmarks.peers.output import Output


def decoded(encoded: tf.Tensor, output: Output) -> tf.Tensor:
    """A JPEG file, string [], to [height, width, channels]."""
    return resized(tf.io.decode_jpeg(encoded, channels=output.channels), output)


def resized(pixels: tf.Tensor, output: Output) -> tf.Tensor:
    """Pixels, uint8 [..., height, width, channels], stretched to the output's size and type."""
    scaled = tf.image.resize(pixels, (output.height, output.width))
    if output.dtype == "uint8":
        return tf.saturate_cast(tf.round(scaled), tf.uint8)
    return scaled / 255
