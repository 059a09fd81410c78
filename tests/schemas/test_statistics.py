"""Statistics of records: gathered in parts or at once, in any order, they are the same."""

import copy
import math
import random
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.bins import bins_of
from schemas.example import encode_example, parse_example
from schemas.receipt import Feature
from schemas.statistics import FeatureSummary, RecordSummary

FEATURES = (
    Feature(name="n", dtype="int64", doc="a number"),
    Feature(name="xs", dtype="float32", ragged=True, doc="numbers"),
    Feature(name="s", dtype="string", doc="a text"),
    Feature(name="b", dtype="bytes", ragged=True, doc="byte strings"),
)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
RECORD = st.fixed_dictionaries(
    {
        "n": st.integers(-(2**63), 2**63 - 1),
        "xs": st.lists(FLOATS, max_size=4),
        "s": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        "b": st.lists(st.binary(max_size=5), max_size=3),
    }
)


def summary_of(records: Sequence[dict[str, Any]]) -> RecordSummary:
    summary = RecordSummary()
    for record in records:
        summary.add(parse_example(FEATURES, encode_example(FEATURES, record)))
    return summary


def units(number: float) -> int:
    """A number in the units of a sum, 2**-300."""
    numerator, denominator = number.as_integer_ratio()
    return (numerator << 300) // denominator


@pytest.mark.parametrize(
    ("feature", "values", "expected"),
    [
        pytest.param(
            "n",
            [3, 0, -5],
            FeatureSummary(
                records=3,
                values=3,
                min_values=1,
                max_values=1,
                sum=units(-2.0),
                sum_of_squares=units(34.0),
                minimum=-5.0,
                maximum=3.0,
                zeros=1,
                bins=Counter(bins_of([3, 0, -5])),
            ),
            id="numbers",
        ),
        pytest.param(
            "xs",
            [[1.5, 0.0], [], [2.0]],
            FeatureSummary(
                records=3,
                values=3,
                min_values=0,
                max_values=2,
                sum=units(3.5),
                sum_of_squares=units(6.25),
                minimum=0.0,
                maximum=2.0,
                zeros=1,
                bins=Counter(bins_of([1.5, 0.0, 2.0])),
            ),
            id="ragged_numbers",
        ),
        pytest.param(
            "s",
            ["€", "", "ab"],
            FeatureSummary(
                records=3,
                values=3,
                min_values=1,
                max_values=1,
                sum=units(5.0),
                sum_of_squares=units(13.0),
                minimum=0.0,
                maximum=3.0,
                zeros=1,
            ),
            id="lengths_of_texts_in_bytes",
        ),
        pytest.param(
            "b",
            [[b"abc"], [b"", b"\x00"]],
            FeatureSummary(
                records=2,
                values=3,
                min_values=1,
                max_values=2,
                sum=units(4.0),
                sum_of_squares=units(10.0),
                minimum=0.0,
                maximum=3.0,
                zeros=1,
            ),
            id="lengths_of_byte_strings",
        ),
        pytest.param(
            "xs",
            [[], []],
            FeatureSummary(records=2, minimum=math.inf, maximum=-math.inf),
            id="records_without_values",
        ),
    ],
)
def test_of_one_feature(feature: str, values: list[Any], expected: FeatureSummary) -> None:
    summary = RecordSummary()
    [declared] = [each for each in FEATURES if each.name == feature]
    for value in values:
        summary.add(parse_example([declared], encode_example([declared], {feature: value})))
    assert summary.features == {feature: expected}


@given(st.lists(st.lists(RECORD, max_size=4), max_size=5), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=100)
def test_merging_parts_in_any_order_is_counting_at_once(
    parts: list[list[dict[str, Any]]], rng: random.Random
) -> None:
    at_once = summary_of([record for part in parts for record in part])
    for part in parts:
        rng.shuffle(part)
    rng.shuffle(parts)
    merged = RecordSummary.merged(summary_of(part) for part in parts)
    assert merged == at_once
    for name, summary in merged.features.items():
        assert summary.records == sum(map(len, parts)), name
        # Bytes have no bins.
        expected = summary.finite if name in ("n", "xs") else 0
        assert summary.bins.total() == expected, name


@given(st.lists(FLOATS, min_size=1, max_size=30))
@settings(deadline=None)
def test_mean_and_standard_deviation(values: list[float]) -> None:
    summary = FeatureSummary()
    for value in values:
        summary.add([value])
    mean = statistics.mean(values)
    assert math.isclose(summary.mean, mean, rel_tol=1e-15)
    # Squares are rounded to 53 bits where float32 has 24: not at all.
    assert math.isclose(summary.standard_deviation, statistics.pstdev(values), rel_tol=1e-12)


def test_small_differences_of_large_numbers_count() -> None:
    """In floating-point arithmetic, the mean of squares less the square of the mean would be 0."""
    summary = FeatureSummary()
    for value in (1e9, 1e9 + 64):
        summary.add([value])
    assert summary.standard_deviation == 32.0


@pytest.mark.parametrize(
    ("values", "not_finite", "mean"),
    [
        pytest.param([1.0, math.nan, 3.0], 1, 2.0, id="nan"),
        pytest.param([math.inf, -math.inf, 3.0], 2, 3.0, id="infinities"),
        pytest.param([math.nan], 1, 0.0, id="nothing_else"),
    ],
)
def test_values_that_are_not_finite_are_only_counted(
    values: list[float], not_finite: int, mean: float
) -> None:
    summary = FeatureSummary()
    summary.add(values)
    assert (summary.values, summary.not_finite, summary.mean) == (len(values), not_finite, mean)
    assert summary.bins.total() == summary.finite == len(values) - not_finite
    merged = FeatureSummary()
    merged.merge(summary)
    assert merged == summary


def test_merging_leaves_the_parts_as_they_are() -> None:
    part = summary_of([{"n": 1, "xs": [], "s": "a", "b": []}])
    before = copy.deepcopy(part)
    RecordSummary.merged([part, part])
    assert part == before


def test_nothing_merged_is_an_empty_summary() -> None:
    assert RecordSummary.merged([]).features == {}
    assert RecordSummary.merged([RecordSummary()]).features == {}


def test_merging_no_records_changes_nothing() -> None:
    summary = FeatureSummary()
    summary.add([2, 3])
    before = copy.deepcopy(summary)
    summary.merge(FeatureSummary())
    assert summary == before
    assert summary.min_values == 2
