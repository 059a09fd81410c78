"""Ends a dataset at its first error.

A record that can't be read fails its batch. Parallel stages behind it have taken records of the
next batch by then, so later batches would no longer be those that the plan deals to their steps.
"""

from typing import Any

import tensorflow as tf

_SENTENCE = (
    "an earlier batch could not be made, so this one might not be that of its step: make the "
    "dataset again, with start_step, once the earlier error is dealt with"
)


def unbroken(numbered: tf.data.Dataset) -> tf.data.Dataset:
    """Removes the numbers of elements, and fails at all elements behind a gap in the numbers.

    Args:
      numbered: pairs of a number, int64 [], and an element. The numbers are 0, 1, 2, … unless
        elements are missing because of an error.
    """

    def check(expected: tf.Tensor, pair: tuple[tf.Tensor, Any]) -> tuple[tf.Tensor, Any]:
        number, element = pair
        with tf.control_dependencies([tf.debugging.Assert(number == expected, [_SENTENCE])]):
            return expected + 1, element

    # A scan that fails keeps its state, so every later element fails as well.
    return numbered.scan(tf.constant(0, tf.int64), check)
