"""The distances between two histograms, against sums worked out by hand."""

import math

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.drift import jensen_shannon


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({"a": 3, "b": 1}, {"a": 30, "b": 10}, 0),
        ({"a": 1}, {"b": 5}, 1),
        # p = (1/2, 1/2), q = (1, 0), their mean (3/4, 1/4): half of (1/2 log2 2/3 + 1/2 log2 2) and
        # of log2 4/3.
        ({"a": 2, "b": 2}, {"a": 7}, (0.5 * math.log2(2 / 3) + 0.5 + math.log2(4 / 3)) / 2),
        ({"a": 4, "b": 0}, {"a": 1}, 0),
    ],
)
def test_jensen_shannon(before: dict[str, int], now: dict[str, int], expected: float):
    assert jensen_shannon(before, now) == pytest.approx(expected, abs=1e-12)
    assert jensen_shannon(now, before) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("before", "now"), [({}, {"a": 1}), ({"a": 1}, {}), ({}, {})])
def test_without_values_there_is_no_distance(before: dict[str, int], now: dict[str, int]):
    assert math.isnan(jensen_shannon(before, now))
