"""Cuts the rows of a window out of a JPEG file, in the graph: see `schemas.restart_rows`."""

import tensorflow as tf

from schemas.restart_rows import (
    END_MARKER,
    MARKERS,
    NUMBERS_BEFORE_ROWS,
    NUMBERS_START,
    TABLE_START,
)

# Decoders make colors of a row from those of the rows beside it, which are of half the size. At a
# scale of 1/8, a window of whole pixels may reach 14 rows further.
_ROWS_BESIDE = 16
_BYTES = [bytes([number]) for number in range(256)]


def cut_rows(encoded: tf.Tensor, window: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Makes a JPEG file of the rows of a window.

    The window has the same pixels in it, to the last bit, decoded at a scale of 1/1 to 1/8.

    Args:
      encoded: JPEG file with the table of its rows, string [].
      window: (top, left, height, width) in pixels, int32 [4].

    Returns:
      The file, string [], and the window in it. The rows before it are a multiple of 64 pixels.
    """
    size = tf.io.decode_raw(tf.strings.substr(encoded, TABLE_START + 2, 2), tf.uint8)
    table_bytes = tf.cast(size[0], tf.int32) * 256 + tf.cast(size[1], tf.int32)
    table_bytes -= NUMBERS_START - TABLE_START - 2
    numbers = tf.io.decode_raw(tf.strings.substr(encoded, NUMBERS_START, table_bytes), tf.int32)
    height_at, row_height, rows = tf.unstack(numbers[:NUMBERS_BEFORE_ROWS], NUMBERS_BEFORE_ROWS)
    starts = numbers[NUMBERS_BEFORE_ROWS:]

    top, left, height, width = tf.unstack(window)
    first = tf.maximum(top - _ROWS_BESIDE, 0) // row_height // MARKERS * MARKERS
    last = tf.minimum((top + height + _ROWS_BESIDE + row_height - 1) // row_height, rows)
    whole = tf.io.decode_raw(tf.strings.substr(encoded, height_at, 2), tf.uint8)
    whole_height = tf.cast(whole[0], tf.int32) * 256 + tf.cast(whole[1], tf.int32)
    high = tf.minimum(last * row_height, whole_height) - first * row_height
    # Behind the data of a row come the two bytes of a marker, or of the end.
    begin, end = starts[first], starts[last] - len(END_MARKER)
    behind_height = height_at + 2
    file = tf.strings.join(
        [
            tf.strings.substr(encoded, 0, height_at),
            tf.gather(_BYTES, high // 256),
            tf.gather(_BYTES, high % 256),
            tf.strings.substr(encoded, behind_height, starts[0] - behind_height),
            tf.strings.substr(encoded, begin, end - begin),
            END_MARKER,
        ]
    )
    return file, tf.stack([top - first * row_height, left, height, width])
