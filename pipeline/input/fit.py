"""Fits images and their boxes into the size that batches have."""

import numpy as np
import tensorflow as tf

from pipeline.config import InputConfig

# Pixels. A side that is above a whole number by rounding of float32 alone must not get a pixel
# more. The value is far above that error. `beam_jobs.images.image` fits with the same one.
_ROUNDING = 0.01
_WHITE = np.uint8(255)


def fit_rectangle(
    size: tf.Tensor, config: InputConfig, target: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the rectangle of the target that scaled images fill.

    An image of 200 × 100 pixels in a target of 300 × 300 is scaled to 300 × 150, with 75 columns
    of padding on each side: (300, 150) and (0, 75). With `fit` "top", the rectangle may end below
    the target: that image is scaled to 600 × 300, and begins at (0, 0).

    Args:
      size: (height, width) of stored images in pixels, integers [..., 2].
      config: size of the target, and `fit`.
      target: (height, width) of the target in pixels, int32 [2], where it is another one.

    Returns:
      (height, width) and (top, left) of the rectangle in pixels, int32 [..., 2].
    """
    if target is None:
        target = tf.constant([config.height, config.width])
    if config.fit == "stretch":
        inner = tf.zeros_like(size, tf.int32) + target
        return inner, tf.zeros_like(inner)
    exact = tf.cast(size, tf.float32)
    scales = tf.cast(target, tf.float32) / exact
    scale = (
        scales[..., 1:] if config.fit == "top" else tf.reduce_min(scales, axis=-1, keepdims=True)
    )
    # Rounded up, like the sides of JPEG files that are decoded at a scale, so that files of twice
    # or four times the size are not resampled after decoding.
    inner = tf.cast(tf.maximum(tf.math.ceil(exact * scale - _ROUNDING), 1), tf.int32)
    return inner, tf.zeros_like(inner) if config.fit == "top" else (target - inner) // 2


def rows_above(
    rows: tf.Tensor, inner: tf.Tensor, config: InputConfig, target: tf.Tensor | None = None
) -> tf.Tensor:
    """Counts the rows of images that are not cut off below the target, int32 [].

    Long images may be many times as long as the target, so they are cut off before they are scaled,
    or not decoded any further.

    Args:
      rows: rows of the images, at any scale, int32 [].
      inner: (height, width) of `fit_rectangle`, int32 [2].
      config: size of the target, and `fit`.
      target: as in `fit_rectangle`.
    """
    if config.fit != "top":
        return rows
    height = config.height if target is None else target[0]
    share = tf.cast(tf.minimum(inner[0], height), tf.float32) / tf.cast(inner[0], tf.float32)
    return tf.cast(tf.math.ceil(tf.cast(rows, tf.float32) * share - _ROUNDING), tf.int32)


def fit_image(
    pixels: tf.Tensor,
    inner: tf.Tensor,
    before: tf.Tensor,
    config: InputConfig,
    target: tf.Tensor | None = None,
) -> tf.Tensor:
    """Scales images into a rectangle of the target; the rest is white.

    Sides that shrink to half or less are averaged. Others are interpolated bilinearly, which reads
    two neighbors of each point and would skip rows of the former.

    Args:
      pixels: uint8 [..., height, width, channels]; with `fit` "top", the rows of `rows_above` only.
      inner: (height, width) of `fit_rectangle`, int32 [2].
      before: (top, left) of `fit_rectangle`, int32 [2].
      config: size of the target, and `fit`.
      target: as in `fit_rectangle`.

    Returns:
      uint8 [..., height, width, config.channels] of the target.
    """
    shape = (config.height, config.width) if target is None else (None, None)
    size = tf.constant(shape) if target is None else target
    inner = tf.minimum(inner, size)

    def resized() -> tf.Tensor:
        stored = tf.shape(pixels)[-3:-1]
        averaged = tf.where(stored >= 2 * inner, inner, stored)
        smaller = tf.cond(
            tf.reduce_all(averaged == stored),
            lambda: tf.cast(pixels, tf.float32),
            lambda: tf.image.resize(pixels, averaged, tf.image.ResizeMethod.AREA),
        )
        # Numbers are positive, so that cutting off after adding a half rounds; tf.round is slower.
        return tf.cast(tf.image.resize(smaller, inner) + 0.5, tf.uint8)

    fits = tf.reduce_all(tf.shape(pixels)[-3:-1] == inner)  # most do, and three passes are spared
    scaled = tf.cond(fits, lambda: pixels, resized)
    if config.fit != "stretch":
        # Rows are missing, or columns, or nothing. tf.pad takes three times as long.
        whole = [*tf.unstack(tf.shape(pixels))[:-3], *tf.unstack(size), config.channels]
        missing = size - inner
        axis = len(whole) - 3 + tf.argmax(missing, output_type=tf.int32)

        def white(length: tf.Tensor) -> tf.Tensor:
            return tf.fill(tf.where(axis == range(len(whole)), length, whole), _WHITE)

        first = tf.reduce_max(before)
        parts = [white(first), scaled, white(tf.reduce_max(missing) - first)]
        scaled = tf.concat(parts, axis)
    return tf.ensure_shape(scaled, [*pixels.shape[:-3], *shape, config.channels])


def fit_boxes(boxes: tf.Tensor, size: tf.Tensor, config: InputConfig) -> tf.Tensor:
    """Moves boxes along with their images.

    Args:
      boxes: float32 [n, max_boxes, 4] of (ymin, xmin, ymax, xmax) as fractions of stored images;
        rows of 0 are padding.
      size: (height, width) of stored images in pixels, integers [n, 2].
      config: size of the target, and `fit`.

    Returns:
      The boxes as fractions of the target, of the same shape; rows of 0 stay 0. What is below the
      target is cut off.
    """
    inner, before = fit_rectangle(size, config)
    target = tf.constant([config.height, config.width], tf.float32)
    scale, shift = (
        tf.tile(tf.cast(part, tf.float32) / target, [1, 2])[:, None] for part in (inner, before)
    )
    is_box = tf.reduce_any(boxes != 0, axis=-1, keepdims=True)
    moved = boxes * scale + shift
    if config.fit == "top":
        is_box &= moved[..., :1] < 1
        moved = tf.minimum(moved, 1.0)
    return tf.where(is_box, moved, 0.0)
