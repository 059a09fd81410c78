"""Random windows of stored images: cut while they are decoded, and boxes follow."""

from typing import Any

import tensorflow as tf

from pipeline.augmentation.projective import matrices, move_boxes
from pipeline.augmentation.stateless_random import uniform
from pipeline.config import RandomCrop

_GRID = 8  # pixels: at each scale at which a JPEG is decoded, a window begins at a whole pixel
_FIRST_DRAW = 1 << 21  # numbers of draws that no augmentation takes


def crop_windows(seeds: Any, size: Any, crop: RandomCrop) -> Any:
    """The window that an example gets.

    Args:
      seeds: int64 [...], of examples.
      size: (height, width) of stored images in pixels, integers [..., 2].
      crop: how small a window may be.

    Returns:
      (top, left, height, width) in pixels, int32 [..., 4].
    """
    draws = [uniform(seeds, _FIRST_DRAW + number) for number in range(4)]
    sides, places = tf.stack(draws[:2], axis=-1), tf.stack(draws[2:], axis=-1)
    whole = tf.cast(size, tf.float64)
    least = tf.math.ceil((crop.min_side + (1 - crop.min_side) * sides) * whole)
    begin = tf.floor(places * (whole - least + 1) / _GRID) * _GRID
    end = tf.minimum(tf.math.ceil((begin + least) / _GRID) * _GRID, whole)
    return tf.cast(tf.concat([begin, end - begin], axis=-1), tf.int32)


def crop_boxes(boxes: Any, windows: Any, size: Any, crop: RandomCrop) -> Any:
    """Boxes as fractions of windows, clipped; 0 for one of which too little is left.

    Args:
      boxes: float32 [n, max_boxes, 4], fractions of stored images.
      windows: int32 [n, 4], of `crop_windows`.
      size: (height, width) of stored images, int64 [n, 2].
      crop: how much must be left of a box.
    """
    fractions = tf.cast(windows, tf.float64) / tf.cast(tf.tile(size, [1, 2]), tf.float64)
    top, left, height, width = tf.unstack(fractions, axis=-1)
    # In fractions from the centre, as `move_boxes` counts.
    across, down = (0.5 - left) / width - 0.5, (0.5 - top) / height - 0.5
    forward = matrices([[1 / width, 0.0, across], [0.0, 1 / height, down], [0.0, 0.0, 1.0]])
    return move_boxes(boxes, forward, (1, 1), crop.min_visible)
