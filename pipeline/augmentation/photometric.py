"""Ops that change light and colour: brightness, contrast, gamma, uneven light, shadow.

They are arithmetic on whole batches and compile with XLA. `corruption` has the ops that make an
image worse. Results may leave 0…1: `augment` clips them.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipeline.augmentation.stateless_random import (
    Interval,
    applies,
    check_interval,
    check_probability,
    log_uniform,
    uniform,
)

_VECTOR = 16  # float32 numbers in the widest vector of a CPU


@dataclass(frozen=True, kw_only=True)
class PhotometricOp(ABC):
    """An op on the image alone; give `change`.

    Attributes:
      probability: how often an example is changed at all.
    """

    probability: float = 1.0

    def __post_init__(self) -> None:
        check_probability(self.probability)

    @abstractmethod
    def change(self, image: Any, seeds: Any, chosen: Any) -> Any:
        """The changed image.

        Args:
          image: float32 [n, height, width, channels] in 0…1.
          seeds: int64 [n].
          chosen: bool [n]; images that aren't must stay as they are.
        """

    def __call__(self, examples: dict[str, Any], seeds: Any) -> dict[str, Any]:
        """The examples with their image changed."""
        image = examples["image"]
        changed = self.change(image, seeds, applies(seeds, self.probability))
        changed.set_shape(image.shape)
        return {**examples, "image": changed}


@dataclass(frozen=True, kw_only=True)
class Brightness(PhotometricOp):
    """Multiplies by a factor, as exposure does."""

    factor: Interval = (0.6, 1.1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("factor", self.factor, least=0, most=10)

    def change(self, image: Any, seeds: Any, chosen: Any) -> Any:
        return image * per_image(uniform(seeds, 0, self.factor), chosen, neutral=1.0)


@dataclass(frozen=True, kw_only=True)
class Contrast(PhotometricOp):
    """Pulls towards mid-grey (below 1: faded print) or pushes away from it.

    About mid-grey and not the image's mean, which depends on how much padding there is.
    """

    factor: Interval = (0.6, 1.3)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("factor", self.factor, least=0, most=10)

    def change(self, image: Any, seeds: Any, chosen: Any) -> Any:
        factor = per_image(uniform(seeds, 0, self.factor), chosen, neutral=1.0)
        return image * factor + 0.5 * (1 - factor)


@dataclass(frozen=True, kw_only=True)
class Gamma(PhotometricOp):
    """Raises to a power: above 1 darkens the mid-tones, below 1 lightens them."""

    gamma: Interval = (0.7, 1.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("gamma", self.gamma, least=0.1, most=10)

    def change(self, image: Any, seeds: Any, chosen: Any) -> Any:
        gamma = per_image(log_uniform(seeds, 0, self.gamma), chosen, neutral=1.0)
        return blend(image, _power(image, gamma), per_image(tf.ones_like(seeds), chosen))


@dataclass(frozen=True, kw_only=True)
class Light(PhotometricOp):
    """Uneven light: a lamp near the picture's edge, whose light falls off with distance.

    Attributes:
      falloff: how much darker the farthest corner is than the brightest point; 0 is even light.
    """

    falloff: Interval = (0.1, 0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("falloff", self.falloff, least=0, most=0.95)

    def change(self, image: Any, seeds: Any, chosen: Any) -> Any:
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
    """The shadow of a hand or a phone: one side of a soft, slightly bent edge is darker.

    Attributes:
      darkness: how much light the shadow takes; 0 is none.
      softness: width of the edge, as a fraction of the longer side.
    """

    darkness: Interval = (0.15, 0.5)
    softness: Interval = (0.03, 0.3)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("darkness", self.darkness, least=0, most=1)
        check_interval("softness", self.softness, least=0.001, most=2)

    def change(self, image: Any, seeds: Any, chosen: Any) -> Any:
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


def blend(image: Any, other: Any, share: Any) -> Any:
    """`image` where share is 0, `other` where it is 1; exactly so. Faster than tf.where."""
    return image * (1 - share) + other * share


def on_channels(field: Any, image: Any) -> Any:
    """float32 [n, height, width, 1] for each channel; broadcasting innermost is slow on a CPU."""
    return tf.repeat(field, image.shape[3], axis=3)


def per_image(values: Any, chosen: Any = None, *, neutral: float = 0.0) -> Any:
    """float64 [n] to float32 [n, 1, 1, 1]; `neutral` for images that aren't chosen."""
    if chosen is not None:
        values = tf.where(chosen, values, tf.cast(neutral, values.dtype))
    return tf.cast(values, tf.float32)[:, None, None, None]


def _plane(image: Any) -> tuple[Any, Any, float, float]:
    """The x [1, 1, width, 1] and y [1, height, 1, 1] from the centre, and what they reach.

    In halves of the longer side.
    """
    height, width = image.shape[1:3]
    longer = max(height, width)
    x = (2 * tf.range(width, dtype=tf.float32) + 1 - width) / longer
    y = (2 * tf.range(height, dtype=tf.float32) + 1 - height) / longer
    return x[None, None, :, None], y[None, :, None, None], width / longer, height / longer


def _power(image: Any, exponent: Any) -> Any:
    """The image to a power, by exp and log: on a CPU they take a seventh of tf.pow's time."""
    size = math.prod(image.shape[1:])
    flat = tf.reshape(image, [-1, size])
    # The vectorised loop and its remainder differ in the last bit: leave no image a remainder.
    flat = tf.pad(flat, [[0, 0], [0, -size % _VECTOR]], constant_values=1.0)
    power = tf.exp(exponent[:, :, 0, 0] * tf.math.log(flat))  # log 0 is -inf, and e to that 0
    return tf.reshape(power[:, :size], [-1, *image.shape[1:]])
