"""Random windows of stored images, which are cut out while the images are decoded."""

import tensorflow as tf

from pipeline.augmentation.projective import matrices, move_boxes
from pipeline.augmentation.stateless_random import uniform
from pipeline.config import RandomCrop

# Pixels. Windows begin at multiples of it, which are whole pixels at each scale of JPEG decoding.
_GRID = 8
_FIRST_DRAW = 1 << 21  # augmentation ops number their draws from 0, and make fewer


def crop_windows(seeds: tf.Tensor, size: tf.Tensor, crop: RandomCrop) -> tf.Tensor:
    """Draws a window for each example.

    Args:
      seeds: seeds of the examples, int64 [...].
      size: (height, width) of stored images in pixels, integers [..., 2].
      crop: minimum size of a window.

    Returns:
      (top, left, height, width) in pixels, int32 [..., 4].
    """
    draws = [uniform(seeds, _FIRST_DRAW + index) for index in range(4)]
    sides, positions = tf.stack(draws[:2], axis=-1), tf.stack(draws[2:], axis=-1)
    whole = tf.cast(size, tf.float64)
    min_size = tf.math.ceil((crop.min_side + (1 - crop.min_side) * sides) * whole)
    begin = tf.floor(positions * (whole - min_size + 1) / _GRID) * _GRID
    end = tf.minimum(tf.math.ceil((begin + min_size) / _GRID) * _GRID, whole)
    return tf.cast(tf.concat([begin, end - begin], axis=-1), tf.int32)


def crop_boxes(
    boxes: tf.Tensor, windows: tf.Tensor, size: tf.Tensor, crop: RandomCrop
) -> tf.Tensor:
    """Converts boxes to fractions of windows and clips them.

    Args:
      boxes: float32 [n, max_boxes, 4] of (ymin, xmin, ymax, xmax) as fractions of stored images.
      windows: of `crop_windows`, int32 [n, 4].
      size: (height, width) of stored images, int64 [n, 2].
      crop: `min_visible`.

    Returns:
      float32 [n, max_boxes, 4]; boxes of which too little is left are 0.
    """
    fractions = tf.cast(windows, tf.float64) / tf.cast(tf.tile(size, [1, 2]), tf.float64)
    top, left, height, width = tf.unstack(fractions, axis=-1)
    # In fractions from the center, the unit of `move_boxes`.
    across, down = (0.5 - left) / width - 0.5, (0.5 - top) / height - 0.5
    forward = matrices([[1 / width, 0.0, across], [0.0, 1 / height, down], [0.0, 0.0, 1.0]])
    return move_boxes(boxes, forward, (1, 1), crop.min_visible)
