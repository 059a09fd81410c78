"""Ops that change light and color: brightness, contrast, gamma, uneven light, shadow.

They are arithmetic on whole batches and compile with XLA. Results may leave 0…1: `augment` clips
them. Ops that make an image worse are in `corruption`.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import tensorflow as tf

from pipeline.augmentation.checks import Interval, check_interval, check_probability
from pipeline.augmentation.stateless_random import applies, log_uniform, uniform

_VECTOR = 16  # float32 numbers in the widest vector of a CPU


@dataclass(frozen=True, kw_only=True)
class PhotometricOp(ABC):
    """An op that changes the image alone; subclasses define `change`.

    Attributes:
      probability: fraction of the examples that are changed.
    """

    probability: float = 1.0

    def __post_init__(self) -> None:
        check_probability(self.probability)

    @abstractmethod
    def change(self, image: tf.Tensor, seeds: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        """Changes images.

        Args:
          image: float32 [n, height, width, channels] in 0…1.
          seeds: int64 [n].
          chosen: bool [n]; images that are not chosen must stay as they are.

        Returns:
          Images of the same shape and dtype.
        """

    def __call__(self, examples: dict[str, tf.Tensor], seeds: tf.Tensor) -> dict[str, tf.Tensor]:
        """Applies this op alone."""
        image = examples["image"]
        changed = self.change(image, seeds, applies(seeds, self.probability))
        changed.set_shape(image.shape)
        return {**examples, "image": changed}


@dataclass(frozen=True, kw_only=True)
class PointwiseOp(PhotometricOp):
    """An op that makes of each number another one, whatever the pixels around it.

    So its results for the levels of uint8 are a table, in which `compiled` looks pixels up.
    """


@dataclass(frozen=True, kw_only=True)
class Brightness(PointwiseOp):
    """Multiplies by a factor, like a longer or shorter exposure."""

    factor: Interval = (0.6, 1.1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("factor", self.factor, minimum=0, maximum=10)

    def change(self, image: tf.Tensor, seeds: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        return image * per_image(uniform(seeds, 0, self.factor), chosen, neutral=1.0)


@dataclass(frozen=True, kw_only=True)
class Contrast(PointwiseOp):
    """Pulls pixels toward mid-gray (factor below 1, like faded print) or pushes them away from it.

    The center is mid-gray and not the image's mean, which depends on the amount of padding.
    """

    factor: Interval = (0.6, 1.3)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("factor", self.factor, minimum=0, maximum=10)

    def change(self, image: tf.Tensor, seeds: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        factor = per_image(uniform(seeds, 0, self.factor), chosen, neutral=1.0)
        return image * factor + 0.5 * (1 - factor)


@dataclass(frozen=True, kw_only=True)
class Gamma(PointwiseOp):
    """Raises to a power: above 1 darkens the midtones, below 1 lightens them."""

    gamma: Interval = (0.7, 1.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("gamma", self.gamma, minimum=0.1, maximum=10)

    def change(self, image: tf.Tensor, seeds: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        gamma = per_image(log_uniform(seeds, 0, self.gamma), chosen, neutral=1.0)
        return blend(image, _power(image, gamma), per_image(tf.ones_like(seeds), chosen))


@dataclass(frozen=True, kw_only=True)
class UnevenLight(PhotometricOp):
    """Lights the image by a lamp near its edge, whose light falls off with distance.

    Attributes:
      falloff: fraction of the light that the farthest corner lacks; 0 is even light.
    """

    falloff: Interval = (0.1, 0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("falloff", self.falloff, minimum=0, maximum=0.95)

    def change(self, image: tf.Tensor, seeds: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        falloff = per_image(uniform(seeds, 0, self.falloff), chosen, neutral=0.0)
        x, y, half_width, half_height = _plane(image)
        lamp_x = per_image(uniform(seeds, 1, (-1.2, 1.2))) * half_width
        lamp_y = per_image(uniform(seeds, 2, (-1.2, 1.2))) * half_height
        farthest = tf.square(tf.abs(lamp_x) + half_width) + tf.square(tf.abs(lamp_y) + half_height)
        # The inverse square law: a lamp at height 1 over the paper lights it by 1 / (1 + r²).
        scale = falloff / (1 - falloff) / farthest
        distance = scale * tf.square(x - lamp_x) + (1 + scale * tf.square(y - lamp_y))
        return image / on_channels(distance, image)


@dataclass(frozen=True, kw_only=True)
class Shadow(PhotometricOp):
    """Casts the shadow of a hand or a phone: one side of a soft, slightly bent edge is darker.

    Attributes:
      darkness: fraction of the light that the shadow takes.
      softness: width of the edge, as a fraction of the longer side.
    """

    darkness: Interval = (0.15, 0.5)
    softness: Interval = (0.03, 0.3)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("darkness", self.darkness, minimum=0, maximum=1)
        check_interval("softness", self.softness, minimum=0.001, maximum=2)

    def change(self, image: tf.Tensor, seeds: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        darkness = per_image(uniform(seeds, 0, self.darkness), chosen, neutral=0.0)
        softness = per_image(2 * log_uniform(seeds, 1, self.softness))
        angle = uniform(seeds, 2, (0.0, 2 * math.pi))
        cosine, sine = per_image(tf.cos(angle)), per_image(tf.sin(angle))
        x, y, half_width, half_height = _plane(image)
        reach = tf.abs(cosine) * half_width + tf.abs(sine) * half_height
        edge = per_image(uniform(seeds, 3, (0.0, 0.8))) * reach
        bend = per_image(uniform(seeds, 4, (-0.4, 0.4)))
        along = cosine * y - sine * x
        inside = cosine * x + sine * y - edge + bend * along * along
        ramp = tf.clip_by_value(inside / softness + 0.5, 0.0, 1.0)
        light = 1 - darkness * (ramp * ramp * (3 - 2 * ramp))
        return image * on_channels(light, image)


def blend(image: tf.Tensor, other: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
    """Mixes two images: exactly `image` where share is 0, exactly `other` where it is 1."""
    # Faster than tf.where.
    return image * (1 - share) + other * share


def on_channels(field: tf.Tensor, image: tf.Tensor) -> tf.Tensor:
    """Repeats a field, float32 [n, height, width, 1], for each channel of the image."""
    # Broadcasting along the innermost axis is slow on a CPU.
    return tf.repeat(field, image.shape[3], axis=3)


def per_image(
    values: tf.Tensor, chosen: tf.Tensor | None = None, *, neutral: float = 0.0
) -> tf.Tensor:
    """Shapes float64 [n] as float32 [n, 1, 1, 1], with `neutral` for images that are not chosen."""
    if chosen is not None:
        values = tf.where(chosen, values, tf.cast(neutral, values.dtype))
    return tf.cast(values, tf.float32)[:, None, None, None]


def _plane(image: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, float, float]:
    """Makes the coordinates of pixels from the center, in halves of the longer side.

    Returns:
      x, float32 [1, 1, width, 1]; y, float32 [1, height, 1, 1]; the x of the right edge; the y of
      the lower edge.
    """
    height, width = image.shape[1:3]
    longer = max(height, width)
    x = (2 * tf.range(width, dtype=tf.float32) + 1 - width) / longer
    y = (2 * tf.range(height, dtype=tf.float32) + 1 - height) / longer
    return x[None, None, :, None], y[None, :, None, None], width / longer, height / longer


def _power(image: tf.Tensor, exponent: tf.Tensor) -> tf.Tensor:
    """Raises an image to a power by image."""
    # exp and log take a seventh of tf.pow's time on a CPU.
    size = math.prod(image.shape[1:])
    flat = tf.reshape(image, [-1, size])
    # The vectorized loop and its remainder differ in the last bit: leave no image a remainder.
    flat = tf.pad(flat, [[0, 0], [0, -size % _VECTOR]], constant_values=1.0)
    power = tf.exp(exponent[:, :, 0, 0] * tf.math.log(flat))  # log 0 is -inf, and e to that 0
    return tf.reshape(power[:, :size], [-1, *image.shape[1:]])
