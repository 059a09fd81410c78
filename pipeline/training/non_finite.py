"""Checks for numbers that are not finite, from which no training recovers."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf


class NonFiniteError(ArithmeticError):
    """A loss or a weight is infinite or not a number; the message names it."""


def check_losses(losses: Sequence[float], *, last_step: int) -> None:
    """Checks the losses of consecutive steps.

    Raises:
      NonFiniteError: a loss is not finite.
    """
    for step, loss in enumerate(losses, start=last_step - len(losses) + 1):
        if not math.isfinite(loss):
            raise NonFiniteError(f"the loss of step {step:,} is {loss}")


def check_weights(variables: Iterable[Any], *, step: int) -> None:
    """Checks Keras variables.

    The loss of a step is computed from the weights before it. So after a step whose gradient is not
    finite, only the loss of the next step would show the damage.

    Raises:
      NonFiniteError: a variable holds a number that is not finite.
    """
    for variable in variables:
        # One variable at a time: each is copied to the host, as for a checkpoint.
        is_float = tf.as_dtype(variable.dtype).is_floating
        if is_float and not np.isfinite(variable.value.numpy()).all():
            raise NonFiniteError(
                f"the weights after step {step:,} hold numbers that are not finite: {variable.path}"
            )
