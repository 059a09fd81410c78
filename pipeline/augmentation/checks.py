"""Checks of the options of augmentation ops."""

Interval = tuple[float, float]


def check_probability(probability: float) -> None:
    """Raises ValueError unless 0 ≤ probability ≤ 1."""
    if not 0 <= probability <= 1:
        raise ValueError(
            f"probability {probability} is not allowed: choose a number from 0 (never) to "
            "1 (always)"
        )


def check_interval(name: str, interval: Interval, *, minimum: float, maximum: float) -> None:
    """Raises ValueError unless the interval is a pair with minimum ≤ low ≤ high ≤ maximum."""
    if (
        not isinstance(interval, tuple)
        or len(interval) != 2
        or not minimum <= interval[0] <= interval[1] <= maximum
    ):
        raise ValueError(
            f"{name} {interval!r} is not allowed: choose a pair (low, high) with "
            f"{minimum:g} ≤ low ≤ high ≤ {maximum:g}"
        )


def check_number(name: str, value: float, *, minimum: float, maximum: float) -> None:
    """Raises ValueError unless minimum ≤ value ≤ maximum."""
    if not minimum <= value <= maximum:
        raise ValueError(
            f"{name} {value} is not allowed: choose a number from {minimum:g} to {maximum:g}"
        )
