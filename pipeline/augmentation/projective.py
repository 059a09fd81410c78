"""Moves the pixels and boxes of a batch by projective maps.

Points are in pixels from the center of the image, x to the right and y down.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_WHITE = 1.0


def warp(
    examples: dict[str, tf.Tensor], forward: tf.Tensor, *, min_visible: float
) -> dict[str, tf.Tensor]:
    """Moves image and boxes.

    Args:
      examples: "image" float32 [n, height, width, channels] in 0…1, and perhaps "boxes".
      forward: maps of points (x, y, 1), float64 [n, 3, 3].
      min_visible: a box is dropped when less than this fraction of its area is in the image.

    Returns:
      `examples` with the image resampled (bilinear, white outside) and each box replaced by the
      bounding box of its moved corners, clipped to the image. Dropped boxes are 0.
    """
    image = examples["image"]
    height, width = image.shape[1:3]
    flat = tf.reshape(backward_maps(forward, height, width), [-1, 9])
    warped = tf.raw_ops.ImageProjectiveTransformV3(
        images=image,
        transforms=tf.cast(flat[:, :8] / flat[:, 8:], tf.float32),  # it takes the last to be 1
        output_shape=tf.constant([height, width]),
        fill_value=_WHITE,
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
    )
    warped.set_shape(image.shape)
    return warp_boxes({**examples, "image": warped}, forward, (height, width), min_visible)


def warp_boxes(
    examples: dict[str, tf.Tensor], forward: tf.Tensor, size: tuple[int, int], min_visible: float
) -> dict[str, tf.Tensor]:
    """Moves the boxes alone, where examples have some; the arguments are those of `move_boxes`."""
    if "boxes" not in examples:
        return examples
    return {**examples, "boxes": move_boxes(examples["boxes"], forward, size, min_visible)}


def matrices(rows: Sequence[Sequence[Any]]) -> tf.Tensor:
    """Stacks 3 rows of 3 numbers, or float64 [n], to float64 [n, 3, 3]."""
    # A number stands for all n maps. The first tensor tells how many these are.
    like = next(entry for row in rows for entry in row if tf.is_tensor(entry))
    cells = [[entry + tf.zeros_like(like) for entry in row] for row in rows]
    return tf.stack([tf.stack(row, axis=-1) for row in cells], axis=-2)


def product(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Multiplies matrices, float64 [n, 3, 3]."""
    # Not by tf.matmul, whose order of addition depends on n.
    # No slice of a stack may also add an axis: TensorFlow 2.17 to 2.21 turns stack(…)[:, k, None]
    # into another shape inside tf.function.
    columns, rows = tf.unstack(left, axis=2), tf.unstack(right, axis=1)
    return sum(
        tf.expand_dims(column, 2) * tf.expand_dims(row, 1)
        for column, row in zip(columns, rows, strict=True)
    )


def move_boxes(
    boxes: tf.Tensor, forward: tf.Tensor, size: tuple[int, int], min_visible: float
) -> tf.Tensor:
    """Moves boxes.

    Args:
      boxes: float32 [n, max_boxes, 4] of (ymin, xmin, ymax, xmax) as fractions; rows of 0 stay.
      forward: maps of points, float64 [n, 3, 3].
      size: (height, width) of the image, in the unit of the maps.
      min_visible: a box is set to 0 when less than this fraction of its area is in the image.
    """
    # Fractions to pixels from the center: of 100 pixels, 0 becomes -50 and 1 becomes 50.
    center = tf.constant([size[0] / 2, size[1] / 2] * 2, tf.float64)
    ymin, xmin, ymax, xmax = tf.unstack(tf.cast(boxes, tf.float64) * 2 * center - center, axis=-1)
    # The four corners of each box, [n, max_boxes, 4]. (u, v, w) is matrix times (x, y, 1), and the
    # moved point is (u / w, v / w).
    x, y = tf.stack([xmin, xmax, xmax, xmin], -1), tf.stack([ymin, ymin, ymax, ymax], -1)
    cells = tf.unstack(tf.reshape(forward, [-1, 9, 1, 1]), axis=1)
    u, v, w = (a * x + b * y + c for a, b, c in (cells[:3], cells[3:6], cells[6:]))
    # Points behind the camera have no image, so boxes with such a corner are dropped.
    in_front = tf.reduce_all(w > 1e-6, axis=-1)
    w = tf.where(w > 1e-6, w, 1.0)
    sides = [tf.reduce_min(v / w, -1), tf.reduce_min(u / w, -1)]
    sides += [tf.reduce_max(v / w, -1), tf.reduce_max(u / w, -1)]
    moved = tf.stack(sides, axis=-1)
    clipped = tf.clip_by_value(moved, -center, center)
    visible, whole = _area(clipped), _area(moved)
    existed = tf.reduce_any(boxes != 0, axis=-1)
    # Rounding alone must not drop a box at the image's side.
    enough = visible >= min_visible * whole * (1 - 1e-6)
    kept = existed & in_front & (visible > 0) & enough
    fractions = (clipped + center) / (2 * center)
    return tf.cast(tf.where(kept[..., None], fractions, 0.0), tf.float32)


def backward_maps(forward: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """Makes the maps by which images are resampled, float64 [n, 3, 3].

    They map pixels of the result to points of the image, both counted from the center of the first
    pixel. A factor of a map does not matter.
    """
    # The center of the first pixel is half a pixel inside the image: of 4 pixels, the center of the
    # image is at 1.5. Where a pixel of the result comes from is the inverse of `forward`.
    x, y = (width - 1) / 2, (height - 1) / 2
    to_center = tf.constant([[[1.0, 0.0, -x], [0.0, 1.0, -y], [0.0, 0.0, 1.0]]], tf.float64)
    from_center = tf.constant([[[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]]], tf.float64)
    return product(from_center, product(_adjugate(forward), to_center))


def _area(boxes: tf.Tensor) -> tf.Tensor:
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
    return (ymax - ymin) * (xmax - xmin)


def _adjugate(matrices: tf.Tensor) -> tf.Tensor:
    """Inverts matrices, except for a factor, which does not matter to a projective map."""
    # With rows a, b, c, the column b × c has the products det, 0, 0 with them. So the matrix of the
    # columns b × c, c × a, a × b is the inverse times the determinant.
    a, b, c = tf.unstack(matrices, axis=1)
    return tf.stack([tf.linalg.cross(b, c), tf.linalg.cross(c, a), tf.linalg.cross(a, b)], axis=-1)
