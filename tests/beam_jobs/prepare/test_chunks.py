"""Chunks: equal ranges of the hash, in its order, of a sensible size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("apache_beam")

from beam_jobs.prepare.chunks import bucket_count, buckets_of, chunk_count

ROWS = st.integers(1, 200_000_000)


@pytest.mark.parametrize(
    ("rows", "chunks"),
    [
        pytest.param(0, 1, id="no_row"),
        pytest.param(1, 1, id="one_row"),
        pytest.param(33, 32, id="few_rows"),
        pytest.param(2_000, 64, id="about_30_rows_each"),
        pytest.param(20_000, 128, id="128_rows_at_least"),
        pytest.param(1_000_000, 4_096, id="more"),
        pytest.param(50_000_000, 262_144, id="large"),
    ],
)
def test_number_of_chunks(rows: int, chunks: int) -> None:
    assert chunk_count(rows) == chunks


def test_no_rows_are_in_no_bucket() -> None:
    assert bucket_count(0) == 1
    assert buckets_of(np.array([], np.uint64), 0).tolist() == []


@given(ROWS)
@settings(deadline=None)
def test_number_of_chunks_is_a_power_of_two_of_sensible_size(rows: int) -> None:
    chunks = chunk_count(rows)
    assert chunks.bit_count() == 1
    assert 1 <= rows / chunks < 256
    assert chunks >= min(rows, 64) / 2
    assert chunks <= 64 or rows / chunks >= 128 / 2


@given(ROWS)
@settings(deadline=None)
def test_buckets_of_keys_are_ranges_of_equal_size(rows: int) -> None:
    buckets = bucket_count(rows)
    starts = [(number << 64) // buckets for number in range(buckets)]
    assert buckets_of(np.array(starts, np.uint64), rows).tolist() == list(range(buckets))
    ends = [*(start - 1 for start in starts[1:]), (1 << 64) - 1]
    assert buckets_of(np.array(ends, np.uint64), rows).tolist() == list(range(buckets))


@given(ROWS)
@settings(deadline=None)
def test_buckets_are_whole_chunks_and_small_enough(rows: int) -> None:
    buckets = bucket_count(rows)
    assert chunk_count(rows) % buckets == 0
    assert buckets >= min(chunk_count(rows), 1024)
    assert rows / buckets <= 64 * 256
