"""`summary.json`: read back, the statistics are the same to the last bit."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.statistics import RecordSummary
from schemas.summary_file import read_summary, summary_text

RECORD = st.fixed_dictionaries(
    {
        "int": st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=1),
        "float": st.lists(st.floats(width=32), max_size=4),
        "text": st.lists(st.binary(max_size=5), max_size=3),
    }
)


def summary_of(records: list[dict[str, Any]]) -> RecordSummary:
    summary = RecordSummary()
    for record in records:
        summary.add(record)
    return summary


@given(st.lists(RECORD, max_size=6))
@settings(deadline=None)
def test_is_read_back_exactly(records: list[dict[str, Any]]) -> None:
    splits = {"train": summary_of(records), "validation": RecordSummary()}
    text = summary_text(splits)
    assert read_summary(text) == splits
    assert read_summary(text.encode()) == splits
    # Another order of the records, and so of the bins, gives the same text.
    assert summary_text({"validation": RecordSummary(), "train": summary_of(records[::-1])}) == text


def test_what_was_read_can_be_added_to() -> None:
    first, second = ([{"float": [0.1, 0.2]}], [{"float": [0.3]}, {"float": [-0.1]}])
    read = read_summary(summary_text({"train": summary_of(first)}))["train"]
    assert RecordSummary.merged([read, summary_of(second)]) == summary_of([*first, *second])


def test_a_feature_in_the_file() -> None:
    summary = summary_of([{"total": [3.0]}, {"total": [0.0]}, {"total": []}])
    assert json.loads(summary_text({"train": summary})) == {
        "format": "tillroll-summary",
        "format_version": 1,
        "splits": {
            "train": {
                "total": {
                    "records": 3,
                    "values": 2,
                    "min_values": 0,
                    "max_values": 1,
                    "not_finite": 0,
                    "zeros": 1,
                    "sum": hex(3 << 300),
                    "sum_of_squares": hex(9 << 300),
                    "minimum": "0x0.0p+0",
                    "maximum": "0x1.8000000000000p+1",
                    "bins": {"0": 1, "65568": 1},
                }
            }
        },
    }


def test_no_value_has_no_bounds() -> None:
    read = read_summary(summary_text({"train": summary_of([{"boxes": []}])}))
    assert read["train"].features["boxes"].minimum == math.inf


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda feature: feature.pop("sum"), "summary.splits.train.total has no 'sum'"),
        (lambda feature: feature.update(records="3"), "total.records is '3', must be an integer"),
        (lambda feature: feature.update(sum="3 €"), "invalid literal"),
        (lambda feature: feature.update(minimum="low"), "invalid hexadecimal"),
        (lambda feature: feature["bins"].update({"?": 1}), "invalid literal"),
    ],
)
def test_damaged_files(change: Callable[[dict[str, Any]], object], sentence: str) -> None:
    values = json.loads(summary_text({"train": summary_of([{"total": [3.0]}])}))
    change(values["splits"]["train"]["total"])
    with pytest.raises(ValueError, match="damaged tillroll-summary file") as error:
        read_summary(json.dumps(values))
    assert sentence in str(error.value)
    assert "build the dataset again" in str(error.value)
