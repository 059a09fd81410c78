"""Reads the EXIF orientation of JPEG files, in the graph: TensorFlow's decoder ignores it.

EXIF data is a TIFF file in a segment of the JPEG file: byte order, offset of a directory, and there
entries of 12 bytes, of which the one with tag 0x0112 holds 1 to 8. Source: CIPA DC-008 (Exif), 4.6.
"""

import tensorflow as tf

_SIGNATURE = b"Exif\0\0"
_TAG = 0x0112
_SEARCHED_BYTES = 1 << 16  # the segment is at the front of the file
_ENTRIES = 64
_ENTRY_BYTES = 12


def orientation(file: tf.Tensor) -> tf.Tensor:
    """Reads the orientation of a JPEG file, string []: int64 [], 1 to 8; 1 if there is none."""
    head = tf.io.decode_raw(tf.strings.substr(file, 0, _SEARCHED_BYTES), tf.uint8)
    # With zeros behind it all reads below stay inside. Zeros do not look like an entry.
    room = 2 * _SEARCHED_BYTES - tf.size(head)
    head = tf.pad(tf.cast(head, tf.int64), [[0, room]])
    starts = _SEARCHED_BYTES - len(_SIGNATURE)
    matches = tf.reduce_all(
        [head[at : at + starts] == byte for at, byte in enumerate(_SIGNATURE)], axis=0
    )
    tiff = tf.argmax(matches) + len(_SIGNATURE)
    little_endian = head[tiff] == ord("I")

    def number(at: tf.Tensor, size_bytes: int) -> tf.Tensor:
        """Reads numbers of so many bytes at positions [...]."""
        digits = tf.gather(head, at[..., None] + tf.range(size_bytes, dtype=tf.int64))
        weights = 256 ** tf.range(size_bytes, dtype=tf.int64)
        return tf.reduce_sum(digits * tf.where(little_endian, weights, weights[::-1]), axis=-1)

    directory = tf.minimum(tiff + number(tiff + 4, 4), _SEARCHED_BYTES)
    index = tf.range(_ENTRIES, dtype=tf.int64)
    entries = directory + 2 + _ENTRY_BYTES * index
    is_orientation = (number(entries, 2) == _TAG) & (index < number(directory, 2))
    value = number(entries[tf.argmax(is_orientation)] + 8, 2)
    is_given = tf.reduce_any(matches) & tf.reduce_any(is_orientation) & (value >= 1) & (value <= 8)
    return tf.where(is_given, value, 1)


def upright(pixels: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Turns pixels [height, width, channels] upright.

    Every orientation is a transposition, a flip from left to right and a flip from top to bottom,
    or some of these, in this order.
    """

    def is_one_of(*orientations: int) -> tf.Tensor:
        return tf.reduce_any(orientation == tf.constant(orientations, orientation.dtype))

    transposed = tf.cond(
        is_one_of(5, 6, 7, 8), lambda: tf.transpose(pixels, [1, 0, 2]), lambda: pixels
    )
    mirrored = tf.cond(is_one_of(2, 3, 6, 7), lambda: transposed[:, ::-1], lambda: transposed)
    return tf.cond(is_one_of(3, 4, 7, 8), lambda: mirrored[::-1], lambda: mirrored)
