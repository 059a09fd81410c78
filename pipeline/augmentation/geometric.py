"""Ops that move pixels and boxes: rotation, shear, scale, perspective, zoom.

A geometric op is a projective map of the plane. `augment` multiplies the matrices of neighboring
ops and resamples the image once. Maps are in pixels from the center of the image, x to the right
and y down. Pixels from outside the image are white, like the padding of receipts.

ImageProjectiveTransformV3, which resamples, has no XLA kernel: with `jit_compile=True`, and on a
TPU, use geometric ops on the host. There, `compiled` resamples where a chain begins with them.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from pipeline.augmentation.checks import Interval, check_interval, check_number, check_probability
from pipeline.augmentation.projective import matrices, product, warp
from pipeline.augmentation.stateless_random import applies, log_uniform, uniform


@dataclass(frozen=True, kw_only=True)
class GeometricOp(ABC):
    """An op that `augment` composes with its geometric neighbors; subclasses define `matrices`.

    Attributes:
      probability: fraction of the examples that are moved.
      min_visible: a box is set to 0 when less than this fraction of its area is left inside the
        image. Of composed ops the highest value counts.
    """

    probability: float = 1.0
    min_visible: float = 0.3

    def __post_init__(self) -> None:
        check_probability(self.probability)
        check_number("min_visible", self.min_visible, minimum=0, maximum=1)

    @abstractmethod
    def matrices(self, seeds: tf.Tensor, height: int, width: int) -> tf.Tensor:
        """Makes the maps of the points of images.

        Args:
          seeds: int64 [n].
          height, width: size of the images in pixels.

        Returns:
          float64 [n, 3, 3], for points (x, y, 1) in pixels from the center.
        """

    def __call__(self, examples: dict[str, tf.Tensor], seeds: tf.Tensor) -> dict[str, tf.Tensor]:
        """Applies this op alone."""
        return move(examples, [self], [seeds])


@dataclass(frozen=True, kw_only=True)
class Rotate(GeometricOp):
    """Turns about the center; positive degrees are clockwise."""

    degrees: Interval = (-5.0, 5.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("degrees", self.degrees, minimum=-180, maximum=180)

    def matrices(self, seeds: tf.Tensor, height: int, width: int) -> tf.Tensor:
        angle = uniform(seeds, 0, self.degrees) * (math.pi / 180)
        cosine, sine = tf.cos(angle), tf.sin(angle)
        return matrices([[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]])


@dataclass(frozen=True, kw_only=True)
class Shear(GeometricOp):
    """Slants lines.

    Attributes:
      horizontal: pixels to the right for each pixel down.
      vertical: pixels down for each pixel to the right.
    """

    horizontal: Interval = (-0.08, 0.08)
    vertical: Interval = (-0.04, 0.04)

    def __post_init__(self) -> None:
        super().__post_init__()
        # Both at 1 would press the image into a line.
        check_interval("horizontal", self.horizontal, minimum=-0.9, maximum=0.9)
        check_interval("vertical", self.vertical, minimum=-0.9, maximum=0.9)

    def matrices(self, seeds: tf.Tensor, height: int, width: int) -> tf.Tensor:
        across, down = uniform(seeds, 0, self.horizontal), uniform(seeds, 1, self.vertical)
        return matrices([[1.0, across, 0.0], [down, 1.0, 0.0], [0.0, 0.0, 1.0]])


@dataclass(frozen=True, kw_only=True)
class Scale(GeometricOp):
    """Enlarges or shrinks about the center.

    Attributes:
      factor: size afterwards, as a multiple of the size before.
      aspect: width divided by height afterwards, as a multiple of the same before.
    """

    factor: Interval = (0.85, 1.1)
    aspect: Interval = (0.9, 1.1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("factor", self.factor, minimum=0.1, maximum=10)
        check_interval("aspect", self.aspect, minimum=0.1, maximum=10)

    def matrices(self, seeds: tf.Tensor, height: int, width: int) -> tf.Tensor:
        factor = log_uniform(seeds, 0, self.factor)
        # The area stays as `factor` has it: an aspect of 4 is twice the width and half the height.
        stretch = tf.sqrt(log_uniform(seeds, 1, self.aspect))
        across, down = factor * stretch, factor / stretch
        return matrices([[across, 0.0, 0.0], [0.0, down, 0.0], [0.0, 0.0, 1.0]])


@dataclass(frozen=True, kw_only=True)
class Perspective(GeometricOp):
    """Moves each corner independently, like a camera held at an angle.

    Attributes:
      displacement: maximum way of a corner, as a fraction of the height and the width.
    """

    displacement: float = 0.06

    def __post_init__(self) -> None:
        super().__post_init__()
        # From a quarter on, four corners may lie on one line.
        check_number("displacement", self.displacement, minimum=0, maximum=0.24)

    def matrices(self, seeds: tf.Tensor, height: int, width: int) -> tf.Tensor:
        limits = (-self.displacement, self.displacement)
        moves = tf.unstack(uniform(seeds[:, None], tf.range(8), limits), axis=1)
        # x of the four corners, clockwise from the upper left one, and then y; sides have length 1.
        corners = zip((-0.5, 0.5, 0.5, -0.5, -0.5, -0.5, 0.5, 0.5), moves, strict=True)
        moved = [side + move for side, move in corners]
        x, y = [side * width for side in moved[:4]], [side * height for side in moved[4:]]
        # Pixels from the center to the unit square: of 100 pixels, -50 becomes 0 and 50 becomes 1.
        from_center = [[1.0 / width, 0.0, 0.5], [0.0, 1.0 / height, 0.5], [0.0, 0.0, 1.0]]
        return product(_square_to_quadrilateral(x, y), tf.constant([from_center], tf.float64))


@dataclass(frozen=True, kw_only=True)
class RandomZoom(GeometricOp):
    """Enlarges a random window of the decoded image to the whole image.

    `pipeline.config.RandomCrop` cuts windows out of the stored image instead.

    Attributes:
      side: height and width of the window, as a fraction of the image's.
    """

    side: Interval = (0.85, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("side", self.side, minimum=0.05, maximum=1)

    def matrices(self, seeds: tf.Tensor, height: int, width: int) -> tf.Tensor:
        side = uniform(seeds, 0, self.side)
        # The center of the window, which comes to lie in the center of the image: x becomes
        # zoom · (x - across). With side 0.8, it is at most a tenth of the width off.
        across = uniform(seeds, 1, (-0.5, 0.5)) * (1 - side) * width
        down = uniform(seeds, 2, (-0.5, 0.5)) * (1 - side) * height
        zoom = 1 / side
        return matrices([[zoom, 0.0, -across * zoom], [0.0, zoom, -down * zoom], [0.0, 0.0, 1.0]])


def move(
    examples: dict[str, tf.Tensor], ops: Sequence[GeometricOp], seeds: Sequence[tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Applies geometric ops in order, resampling once.

    Args:
      examples: "image" float32 [n, height, width, channels] in 0…1, and perhaps "boxes".
      ops: one or more ops.
      seeds: int64 [n] for each op.
    """
    height, width = examples["image"].shape[1:3]
    forward = composed(ops, seeds, height, width)
    return warp(examples, forward, min_visible=strictest(ops))


def composed(
    ops: Sequence[GeometricOp], seeds: Sequence[tf.Tensor], height: int, width: int
) -> tf.Tensor:
    """Makes one map of several ops in order.

    Args:
      ops: one or more ops.
      seeds: int64 [n] for each op.
      height, width: size of the images in pixels.

    Returns:
      float64 [n, 3, 3], for points (x, y, 1) in pixels from the center.
    """
    forward = tf.eye(3, batch_shape=tf.shape(seeds[0]), dtype=tf.float64)
    # A point is multiplied by the matrix of the first op first, so that of the next is on the left.
    for op, op_seeds in zip(ops, seeds, strict=True):
        moved = product(op.matrices(op_seeds, height, width), forward)
        forward = tf.where(applies(op_seeds, op.probability)[:, None, None], moved, forward)
    return forward


def strictest(ops: Sequence[GeometricOp]) -> float:
    """Returns the highest `min_visible` of some ops."""
    return max(op.min_visible for op in ops)


def _square_to_quadrilateral(x: Sequence[tf.Tensor], y: Sequence[tf.Tensor]) -> tf.Tensor:
    """Makes the map of the unit square's corners, clockwise from (0, 0), to four points.

    Heckbert, Fundamentals of Texture Mapping and Image Warping (1989), section 2.2.3.
    """
    # With rows a b c, d e f and g h 1, (u, v) goes to ((a u + b v + c) / w, (d u + e v + f) / w),
    # where w = g u + h v + 1. At (0, 0) this is (c, f), the first point. At (1, 0) its x is
    # (a + c) / (1 + g) = x[1], so a = x[1] - x[0] + g x[1]. The point opposite the first fixes g
    # and h; both are 0 for a parallelogram.
    x1, x2, x3 = x[1] - x[2], x[3] - x[2], x[0] - x[1] + x[2] - x[3]
    y1, y2, y3 = y[1] - y[2], y[3] - y[2], y[0] - y[1] + y[2] - y[3]
    determinant = x1 * y2 - x2 * y1
    g, h = (x3 * y2 - x2 * y3) / determinant, (x1 * y3 - x3 * y1) / determinant
    return matrices(
        [
            [x[1] - x[0] + g * x[1], x[3] - x[0] + h * x[3], x[0]],
            [y[1] - y[0] + g * y[1], y[3] - y[0] + h * y[3], y[0]],
            [g, h, 1.0],
        ]
    )
