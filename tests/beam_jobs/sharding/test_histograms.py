"""Counts of category values: sums of histograms, and shards that hold others than planned."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("apache_beam")

from beam_jobs.errors import BuildError
from beam_jobs.sharding.histograms import Histogram, check_layouts


@given(st.lists(st.lists(st.lists(st.integers(0, 9)), max_size=4), min_size=1, max_size=4))
@settings(deadline=None, max_examples=100)
def test_a_histogram_counts_all_codes_however_they_were_cut_up(bundles: list[list[list[int]]]):
    combine = Histogram()
    histograms = []
    for bundle in bundles:
        histogram = combine.create_accumulator()
        for codes in bundle:
            histogram = combine.add_input(histogram, np.array(codes, np.int32))
        histograms.append(histogram)
    total = combine.extract_output(combine.merge_accumulators(histograms))
    codes = [code for bundle in bundles for shard in bundle for code in shard]
    assert total.dtype == np.int64
    assert total.tolist() == np.bincount(np.array(codes, np.int64)).tolist()


def test_a_shard_with_the_planned_layouts():
    codes = np.array([2, 0, 0], np.int32)
    check_layouts("s", codes, expected=np.array([2, 0, 1]), layouts=["a", "b", "c"])


@pytest.mark.parametrize(
    ("codes", "sentence"),
    [
        ([0, 0, 1], "s holds 1 records of layout 'b', but the plan gives it 0: "),
        ([0, 2], "s holds 1 records of layout 'a', but the plan gives it 2: "),
        ([], "s holds 0 records of layout 'a', but the plan gives it 2: "),
    ],
)
def test_a_shard_with_other_layouts(codes: list[int], sentence: str):
    found = np.array(codes, np.int32)
    with pytest.raises(BuildError, match=f"^{sentence}the runner lost or repeated some"):
        check_layouts("s", found, expected=np.array([2, 0, 1]), layouts=["a", "b", "c"])
