"""The EXIF orientation of a JPEG file, in the graph: TensorFlow's decoder ignores it.

EXIF data is a TIFF file in a segment of the JPEG file: byte order, offset of a directory, and there
entries of 12 bytes, of which the one with tag 0x0112 holds 1 to 8. Source: CIPA DC-008 (Exif), 4.6.
"""

import tensorflow as tf

_SIGNATURE = b"Exif\0\0"
_TAG = 0x0112
_SEARCHED_BYTES = 1 << 16  # the segment stands at the front
_ENTRIES = 64
_ENTRY_BYTES = 12


def orientation(file: tf.Tensor) -> tf.Tensor:
    """How a JPEG file, string [], is to be turned: int64 [], 1 (not) to 8; 1 if it does not say."""
    head = tf.io.decode_raw(tf.strings.substr(file, 0, _SEARCHED_BYTES), tf.uint8)
    # Zeros behind it make every read below lie inside; they look like no entry.
    room = 2 * _SEARCHED_BYTES - tf.size(head)
    head = tf.pad(tf.cast(head, tf.int64), [[0, room]])
    starts = _SEARCHED_BYTES - len(_SIGNATURE)
    matches = tf.reduce_all(
        [head[at : at + starts] == byte for at, byte in enumerate(_SIGNATURE)], axis=0
    )
    tiff = tf.argmax(matches) + len(_SIGNATURE)
    little_endian = head[tiff] == ord("I")

    def number(at: tf.Tensor, size_bytes: int) -> tf.Tensor:
        """The numbers of so many bytes at positions [...]."""
        digits = tf.gather(head, at[..., None] + tf.range(size_bytes, dtype=tf.int64))
        places = 256 ** tf.range(size_bytes, dtype=tf.int64)
        return tf.reduce_sum(digits * tf.where(little_endian, places, places[::-1]), axis=-1)

    directory = tf.minimum(tiff + number(tiff + 4, 4), _SEARCHED_BYTES)
    place = tf.range(_ENTRIES, dtype=tf.int64)
    entries = directory + 2 + _ENTRY_BYTES * place
    is_orientation = (number(entries, 2) == _TAG) & (place < number(directory, 2))
    value = number(entries[tf.argmax(is_orientation)] + 8, 2)
    said = tf.reduce_any(matches) & tf.reduce_any(is_orientation) & (value >= 1) & (value <= 8)
    return tf.where(said, value, 1)


def upright(pixels: tf.Tensor, turn: tf.Tensor) -> tf.Tensor:
    """Turns [height, width, channels] as an orientation says."""
    for turns, turned in (
        ((5, 6, 7, 8), lambda pixels: tf.transpose(pixels, [1, 0, 2])),
        ((2, 3, 6, 7), lambda pixels: pixels[:, ::-1]),
        ((3, 4, 7, 8), lambda pixels: pixels[::-1]),
    ):
        applies = tf.reduce_any(turn == tf.constant(turns, turn.dtype))
        pixels = tf.cond(applies, lambda p=pixels, t=turned: t(p), lambda p=pixels: p)
    return pixels
