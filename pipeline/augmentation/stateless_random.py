"""Random numbers of an example: a pure function of its seed, whatever else is in the batch.

`tf.random.stateless_*` takes one seed for a whole tensor, so an example's numbers would depend on
its row. A hash of each example's own seed doesn't, and is integer arithmetic: the same on every
device.
"""

from typing import Any

import tensorflow as tf

Interval = tuple[float, float]

# Multipliers below 2**31: a product with a 32-bit number then fits into int64, which has kernels
# where unsigned integers have none. The hash is the finaliser of Mueller's "hash32".
_MULTIPLIER = 0x45D9F3B
_STRIDE = 0x61C88647  # 2**32 / golden ratio, the step of SplitMix
_MASK = 0xFFFFFFFF


def fold_in(seeds: Any, number: int | Any) -> Any:
    """Seeds for purpose `number`, independent of those for any other number.

    Args:
      seeds: int64, non-negative and below 2**32.
      number: an int, or int64 numbers that broadcast with `seeds`.

    Returns:
      int64 of the same range, in the shape of the broadcast.
    """
    number = tf.cast(number, tf.int64)
    mixed = tf.bitwise.bitwise_and(seeds + (number + 1) * _STRIDE, _MASK)
    for _ in range(2):
        mixed = tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(mixed, _int64(16)))
        mixed = tf.bitwise.bitwise_and(mixed * _MULTIPLIER, _MASK)
    return tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(mixed, _int64(16)))


def uniform(seeds: Any, number: int | Any, interval: Interval = (0.0, 1.0)) -> Any:
    """One float64 number in [low, high) for each seed; another `number`, another draw.

    float64, because sines and powers in float32 may differ in their last bit between the
    vectorised loop and its remainder, so with the row; rounded from float64 they don't.
    """
    low, high = interval
    fraction = tf.cast(fold_in(seeds, number), tf.float64) * 2.0**-32
    return low + (high - low) * fraction


def log_uniform(seeds: Any, number: int, interval: Interval) -> Any:
    """Like `uniform`, but equally likely to be below and above the geometric mean."""
    low, high = interval
    return tf.pow(tf.constant(high / low, tf.float64), uniform(seeds, number)) * low


def applies(seeds: Any, probability: float) -> Any:
    """Whether an op of this probability is applied to an example; bool [n]."""
    return uniform(seeds, _APPLIES) < probability


_APPLIES = 1 << 20  # no op makes that many draws


def check_probability(probability: float) -> None:
    """Raises ValueError unless 0 ≤ probability ≤ 1."""
    if not 0 <= probability <= 1:
        raise ValueError(
            f"probability {probability} is not allowed: choose a number from 0 (never) to "
            "1 (always)"
        )


def check_interval(name: str, interval: Interval, *, least: float, most: float) -> None:
    """Raises ValueError unless least ≤ low ≤ high ≤ most."""
    if (
        not isinstance(interval, tuple)
        or len(interval) != 2
        or not least <= interval[0] <= interval[1] <= most
    ):
        raise ValueError(
            f"{name} {interval!r} is not allowed: choose a pair (low, high) with "
            f"{least:g} ≤ low ≤ high ≤ {most:g}"
        )


def check_number(name: str, value: float, *, least: float, most: float) -> None:
    """Raises ValueError unless least ≤ value ≤ most."""
    if not least <= value <= most:
        raise ValueError(
            f"{name} {value} is not allowed: choose a number from {least:g} to {most:g}"
        )


def _int64(value: int) -> Any:
    return tf.constant(value, tf.int64)
