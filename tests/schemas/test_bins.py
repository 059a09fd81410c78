"""Bins of numbers: narrow, in order, and good enough for quantiles and histograms."""

import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.bins import Distribution, bins_of

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.one_of(
    st.lists(FLOATS, min_size=1, max_size=50),
    st.lists(INTEGERS, min_size=1, max_size=50),
    # Small ranges, in which numbers come more than once.
    st.lists(st.integers(-200, 200), min_size=1, max_size=50),
)


def distribution(numbers: list[float]) -> Distribution:
    return Distribution(
        counts=Counter(bins_of(numbers)),
        minimum=float(min(numbers)),
        maximum=float(max(numbers)),
        whole=isinstance(numbers[0], int),
    )


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0.0, 0),
        (-0.0, 0),
        (2.0**-149, 55_936),  # the smallest of float32
        (1.0, 65_472),
        (1.0156, 65_472),
        (1.015625, 65_473),
        (2.0, 65_536),  # 64 bins further
        (100, 65_892),
        (100.9, 65_892),
        (101, 65_893),
        (-100, -65_892),
    ],
)
def test_bins(number: float, expected: int) -> None:
    assert bins_of([number]) == [expected]


@given(st.lists(FLOATS, min_size=2, max_size=20))
def test_bins_are_in_the_order_of_their_numbers(numbers: list[float]) -> None:
    assert bins_of(sorted(numbers)) == sorted(bins_of(numbers))


@given(FLOATS.filter(lambda number: number > 0))
def test_a_bin_is_a_sixty_fourth_of_its_numbers_at_most(number: float) -> None:
    [own] = bins_of([number])
    assert bins_of([number * (1 + 1 / 63)]) != [own]
    assert bins_of([-number]) == [-own]


@given(NUMBERS, st.integers(2, 12))
@settings(deadline=None, max_examples=300)
def test_quantiles_are_within_a_bin_of_the_exact_ones(numbers: list[float], parts: int) -> None:
    bounds = distribution(numbers).quantiles(parts)
    assert bounds == sorted(bounds)
    assert len(bounds) == parts + 1
    assert (bounds[0], bounds[-1]) == (min(map(float, numbers)), max(map(float, numbers)))
    ordered = sorted(map(float, numbers))
    for part in range(1, parts):
        exact = ordered[math.ceil(Fraction(part * len(ordered), parts)) - 1]
        # The number at 1/64 from the exact one, and what rounding adds to it.
        assert math.isclose(bounds[part], exact, rel_tol=1.01 / 64), part


@given(NUMBERS, st.integers(1, 12))
@settings(deadline=None, max_examples=300)
def test_equal_widths_hold_all_numbers(numbers: list[float], parts: int) -> None:
    spans = distribution(numbers).equal_widths(parts)
    assert math.isclose(sum(span.count for span in spans), len(numbers))
    assert all(span.count >= 0 for span in spans)
    assert (spans[0].low, spans[-1].high) == (min(map(float, numbers)), max(map(float, numbers)))
    assert all(one.high == other.low for one, other in pairwise(spans))
    assert len(spans) == (parts if min(numbers) < max(numbers) else 1)
    width = (spans[-1].high - spans[0].low) / parts
    for span in spans if width else []:
        # Numbers that are further from the bounds than a bin are counted exactly.
        slack = max(map(abs, numbers)) / 60 + width * 1e-9
        inner = sum(span.low + slack <= number < span.high - slack for number in numbers)
        outer = sum(span.low - slack <= number <= span.high + slack for number in numbers)
        assert inner - 1e-6 <= span.count <= outer + 1e-6


def test_small_whole_numbers_are_counted_exactly() -> None:
    numbers = [1, 1, 1, 3, 3, 63, 100, 127]
    made = distribution(numbers)
    assert made.quantiles(4) == [1, 1, 3, 63, 127]
    assert [(span.low, span.high, span.count) for span in made.equal_widths(2)] == [
        (1, 64, 6),
        (64, 127, 2),
    ]


def test_numbers_lie_evenly_in_their_bin() -> None:
    """The whole numbers of the bin are 128 and 129; of the four, a half counts below 128.5."""
    made = distribution([120, 128, 128, 129, 129, 137])
    [first, second] = made.equal_widths(2)
    assert (first.high, first.count, second.count) == (128.5, 3.0, 3.0)
    assert made.quantiles(2) == [120, 128.5, 137]
