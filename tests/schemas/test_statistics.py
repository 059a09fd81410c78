"""Statistics of records: gathered in parts or at once, they are the same."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.example import encode_example, parse_example
from schemas.receipt import Feature
from schemas.statistics import FeatureSummary, RecordSummary

FEATURES = (
    Feature(name="n", dtype="int64", doc="a number"),
    Feature(name="xs", dtype="float32", ragged=True, doc="numbers"),
    Feature(name="s", dtype="string", doc="a text"),
    Feature(name="b", dtype="bytes", ragged=True, doc="byte strings"),
)
# Small whole numbers, so that sums do not depend on their order.
RECORD = st.fixed_dictionaries(
    {
        "n": st.integers(-1000, 1000),
        "xs": st.lists(st.integers(-50, 50).map(float), max_size=4),
        "s": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        "b": st.lists(st.binary(max_size=5), max_size=3),
    }
)


def summary_of(records: Sequence[dict[str, Any]]) -> RecordSummary:
    summary = RecordSummary()
    for record in records:
        summary.add(parse_example(FEATURES, encode_example(FEATURES, record)))
    return summary


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
                sum=-2.0,
                sum_of_squares=34.0,
                minimum=-5.0,
                maximum=3.0,
                zeros=1,
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
                sum=3.5,
                sum_of_squares=6.25,
                minimum=0.0,
                maximum=2.0,
                zeros=1,
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
                sum=5.0,
                sum_of_squares=13.0,
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
                sum=4.0,
                sum_of_squares=10.0,
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


@given(st.lists(st.lists(RECORD, max_size=4), max_size=5))
@settings(deadline=None, max_examples=100)
def test_merging_parts_is_counting_at_once(parts: list[list[dict[str, Any]]]) -> None:
    merged = RecordSummary.merged(summary_of(part) for part in parts)
    at_once = summary_of([record for part in parts for record in part])
    assert asdict(merged) == asdict(at_once)
    for name, summary in merged.features.items():
        assert summary.records == sum(map(len, parts)), name


def test_merging_leaves_the_parts_as_they_are() -> None:
    part = summary_of([{"n": 1, "xs": [], "s": "a", "b": []}])
    before = asdict(part)
    RecordSummary.merged([part, part])
    assert asdict(part) == before


def test_nothing_merged_is_an_empty_summary() -> None:
    assert RecordSummary.merged([]).features == {}
    assert RecordSummary.merged([RecordSummary()]).features == {}


def test_merging_no_records_changes_nothing() -> None:
    summary = FeatureSummary()
    summary.add([2, 3])
    before = asdict(summary)
    summary.merge(FeatureSummary())
    assert asdict(summary) == before
    assert summary.min_values == 2
