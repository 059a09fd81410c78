"""Random numbers of examples, a pure function of each example's seed.

`tf.random.stateless_*` takes one seed for a whole tensor, so an example's numbers would depend on
its row. The hash of an example's seed does not. It is integer arithmetic, so it is also the same on
every device.
"""

import tensorflow as tf

from pipeline.augmentation.checks import Interval

# Multipliers below 2**31: a product with a 32-bit number then fits into int64, which has kernels
# where unsigned integers have none. The hash is the finalizer of Mueller's "hash32".
_MULTIPLIER = 0x45D9F3B
_STRIDE = 0x61C88647  # 2**32 / golden ratio, the step of SplitMix
_MASK = 0xFFFFFFFF
_APPLIES = 1 << 20  # ops count their draws from 0, and none makes that many


def fold_in(seeds: tf.Tensor, data: int | tf.Tensor) -> tf.Tensor:
    """Derives new seeds, independent for different `data`, as `jax.random.fold_in` does.

    Args:
      seeds: int64, non-negative and below 2**32.
      data: an int, or int64 numbers that broadcast with `seeds`.

    Returns:
      int64 of the same range, in the shape of the broadcast.
    """
    data = tf.cast(data, tf.int64)
    mixed = tf.bitwise.bitwise_and(seeds + (data + 1) * _STRIDE, _MASK)
    for _ in range(2):
        mixed = tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(mixed, _int64(16)))
        mixed = tf.bitwise.bitwise_and(mixed * _MULTIPLIER, _MASK)
    return tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(mixed, _int64(16)))


def uniform(seeds: tf.Tensor, data: int | tf.Tensor, interval: Interval = (0.0, 1.0)) -> tf.Tensor:
    """Draws a number in [low, high) for each seed; different `data` give independent draws.

    The numbers are float64: sines and powers in float32 may differ in their last bit between a
    vectorized loop and its remainder, so with the row of the example. Rounded from float64 they do
    not.

    Returns:
      float64, in the shape of the broadcast of `seeds` and `data`.
    """
    low, high = interval
    fraction = tf.cast(fold_in(seeds, data), tf.float64) * 2.0**-32
    return low + (high - low) * fraction


def log_uniform(seeds: tf.Tensor, data: int, interval: Interval) -> tf.Tensor:
    """Draws like `uniform`, but as often below as above the geometric mean of the interval."""
    # From 0.5 to 2 that is 0.5 · 4 ** u with u in 0…1, so half of the draws are below 1.
    low, high = interval
    return tf.pow(tf.constant(high / low, tf.float64), uniform(seeds, data)) * low


def applies(seeds: tf.Tensor, probability: float) -> tf.Tensor:
    """Draws which examples an op is applied to: bool [n]."""
    return uniform(seeds, _APPLIES) < probability


def _int64(value: int) -> tf.Tensor:
    return tf.constant(value, tf.int64)
