"""Ops that move pixels: rotation, shear, scale, perspective, crop. Boxes move along.

A geometric op is a projective map of the plane, so neighbouring ones are multiplied into one matrix
and the image is resampled once (`augment` does that). Maps are in pixels from the image's centre, x
to the right and y down; what comes from outside the image is white, like the padding of receipts.

ImageProjectiveTransformV3, which resamples, has no XLA kernel: with `jit_compile=True`, and on a
TPU, geometric ops belong on the host.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipeline.augmentation.projective import matrices, product, warp
from pipeline.augmentation.stateless_random import (
    Interval,
    applies,
    check_interval,
    check_number,
    check_probability,
    log_uniform,
    uniform,
)


@dataclass(frozen=True, kw_only=True)
class GeometricOp(ABC):
    """An op that `augment` composes with its geometric neighbours; give `matrices`.

    Attributes:
      probability: how often an example is moved at all.
      min_visible: a box is set to 0 when less than this fraction of its area is left inside the
        image. Of composed ops the strictest counts.
    """

    probability: float = 1.0
    min_visible: float = 0.3

    def __post_init__(self) -> None:
        check_probability(self.probability)
        check_number("min_visible", self.min_visible, least=0, most=1)

    @abstractmethod
    def matrices(self, seeds: Any, height: int, width: int) -> Any:
        """Where a point of the image goes: float64 [n, 3, 3], in pixels from the centre."""

    def __call__(self, examples: dict[str, Any], seeds: Any) -> dict[str, Any]:
        """The op alone."""
        return move(examples, [self], [seeds])


@dataclass(frozen=True, kw_only=True)
class Rotate(GeometricOp):
    """Turns about the centre; positive degrees are clockwise."""

    degrees: Interval = (-5.0, 5.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("degrees", self.degrees, least=-180, most=180)

    def matrices(self, seeds: Any, height: int, width: int) -> Any:
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
        check_interval("horizontal", self.horizontal, least=-0.9, most=0.9)
        check_interval("vertical", self.vertical, least=-0.9, most=0.9)

    def matrices(self, seeds: Any, height: int, width: int) -> Any:
        across, down = uniform(seeds, 0, self.horizontal), uniform(seeds, 1, self.vertical)
        return matrices([[1.0, across, 0.0], [down, 1.0, 0.0], [0.0, 0.0, 1.0]])


@dataclass(frozen=True, kw_only=True)
class Scale(GeometricOp):
    """Enlarges or shrinks about the centre.

    Attributes:
      factor: size after to size before.
      aspect: width to height after, to what it was before.
    """

    factor: Interval = (0.85, 1.1)
    aspect: Interval = (0.9, 1.1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("factor", self.factor, least=0.1, most=10)
        check_interval("aspect", self.aspect, least=0.1, most=10)

    def matrices(self, seeds: Any, height: int, width: int) -> Any:
        factor = log_uniform(seeds, 0, self.factor)
        stretch = tf.sqrt(log_uniform(seeds, 1, self.aspect))
        across, down = factor * stretch, factor / stretch
        return matrices([[across, 0.0, 0.0], [0.0, down, 0.0], [0.0, 0.0, 1.0]])


@dataclass(frozen=True, kw_only=True)
class Perspective(GeometricOp):
    """Moves each corner on its own, as a camera held at an angle does.

    Attributes:
      displacement: how far a corner moves at most, as a fraction of the height and the width.
    """

    displacement: float = 0.06

    def __post_init__(self) -> None:
        super().__post_init__()
        # From a quarter on, four corners may lie on one line.
        check_number("displacement", self.displacement, least=0, most=0.24)

    def matrices(self, seeds: Any, height: int, width: int) -> Any:
        limits = (-self.displacement, self.displacement)
        moves = tf.unstack(uniform(seeds[:, None], tf.range(8), limits), axis=1)
        corners = zip((-0.5, 0.5, 0.5, -0.5, -0.5, -0.5, 0.5, 0.5), moves, strict=True)
        moved = [side + move for side, move in corners]
        x, y = [each * width for each in moved[:4]], [each * height for each in moved[4:]]
        from_centre = [[1.0 / width, 0.0, 0.5], [0.0, 1.0 / height, 0.5], [0.0, 0.0, 1.0]]
        return product(_square_to_quadrilateral(x, y), tf.constant([from_centre], tf.float64))


@dataclass(frozen=True, kw_only=True)
class Crop(GeometricOp):
    """Enlarges a random window to the whole image.

    Attributes:
      side: height and width of the window, as a fraction of the image's.
    """

    side: Interval = (0.85, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("side", self.side, least=0.05, most=1)

    def matrices(self, seeds: Any, height: int, width: int) -> Any:
        side = uniform(seeds, 0, self.side)
        across = uniform(seeds, 1, (-0.5, 0.5)) * (1 - side) * width
        down = uniform(seeds, 2, (-0.5, 0.5)) * (1 - side) * height
        zoom = 1 / side
        return matrices([[zoom, 0.0, -across * zoom], [0.0, zoom, -down * zoom], [0.0, 0.0, 1.0]])


def move(
    examples: dict[str, Any], ops: Sequence[GeometricOp], seeds: Sequence[Any]
) -> dict[str, Any]:
    """Applies geometric ops in order, resampling once.

    Args:
      examples: "image" float32 [n, height, width, channels] in 0…1, and perhaps "boxes".
      ops: at least one.
      seeds: for each op its int64 [n].
    """
    height, width = examples["image"].shape[1:3]
    forward = tf.eye(3, batch_shape=tf.shape(seeds[0]), dtype=tf.float64)
    for op, op_seeds in zip(ops, seeds, strict=True):
        moved = product(op.matrices(op_seeds, height, width), forward)
        forward = tf.where(applies(op_seeds, op.probability)[:, None, None], moved, forward)
    return warp(examples, forward, min_visible=max(op.min_visible for op in ops))


def _square_to_quadrilateral(x: Sequence[Any], y: Sequence[Any]) -> Any:
    """The map of the unit square's corners, clockwise from 0, 0, to those given.

    Heckbert, Fundamentals of Texture Mapping and Image Warping (1989), section 2.2.3.
    """
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
