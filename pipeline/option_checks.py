"""Checks of options, whose errors say what is allowed."""

import numbers
from typing import Any

MAX_STEP = 1 << 40  # which a run of 1,000 steps a second reaches in 35 years


def check_integer(name: str, value: Any, *, example: int, minimum: int = 1) -> None:
    """Raises ValueError unless the value is an integer of at least `minimum`."""
    if not _is(numbers.Integral, value):
        raise ValueError(f"{name} must be an integer, such as {example}, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")


def check_step(name: str, value: Any) -> None:
    """Raises ValueError unless the value is a global step: 0 to 2**40.

    Products of a step and of the records of a batch must fit into 64 bits.
    """
    check_integer(name, value, example=1000, minimum=0)
    if value > MAX_STEP:
        raise ValueError(f"{name} must be at most {MAX_STEP:,} (2**40), got {value}")


def check_number(name: str, value: Any, *, example: float) -> None:
    """Raises ValueError unless the value is a number."""
    if not _is(numbers.Real, value):
        raise ValueError(f"{name} must be a number, such as {example:g}, got {value!r}")


def check_type(name: str, value: Any, allowed: type, *, example: str) -> None:
    """Raises ValueError unless the value is of a type."""
    if not isinstance(value, allowed):
        raise ValueError(
            f"{name} must be of type {allowed.__name__}, such as {example}, got {value!r}"
        )


def as_integer(name: str, value: Any, *, example: int) -> int:
    """Converts an integer, or a tensor or variable that holds one, to an int.

    Raises:
      ValueError: the value is not an integer.
    """
    number = value.numpy() if hasattr(value, "numpy") else value
    if getattr(number, "shape", None) == ():
        number = number.item()
    if not _is(numbers.Integral, number):
        raise ValueError(f"{name} must be an integer, such as {example}, got {value!r}")
    return int(number)


def _is(kind: Any, value: Any) -> bool:
    """Tells whether a value is a number of a kind; True and False are not."""
    return isinstance(value, kind) and not isinstance(value, bool)
