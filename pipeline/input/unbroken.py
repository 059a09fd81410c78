"""Batches up to the first error, and none after it.

A record that can't be read fails its batch. Stages behind it, which run in parallel, have taken
records of the next batch by then, so what follows would no longer be what the plan deals to a step.
"""

from typing import Any

import tensorflow as tf

_SENTENCE = (
    "an earlier batch could not be made, so this one might not be that of its step: make the "
    "dataset again, with start_step, once the earlier error is dealt with"
)


def unbroken(numbered: tf.data.Dataset) -> tf.data.Dataset:
    """Takes the numbers off elements, and fails at each one behind a gap in the numbers.

    Args:
      numbered: pairs of a number, int64 [], and an element. Without an error the numbers are 0, 1,
        2, …
    """

    def check(expected: tf.Tensor, pair: tuple[tf.Tensor, Any]) -> tuple[tf.Tensor, Any]:
        number, element = pair
        with tf.control_dependencies([tf.debugging.Assert(number == expected, [_SENTENCE])]):
            return expected + 1, element

    # A scan that fails keeps its state, so every later element fails as well.
    return numbered.scan(tf.constant(0, tf.int64), check)
