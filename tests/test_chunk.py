"""Chunks: equal ranges of the hash, in its order, of a sensible size."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("apache_beam")

from beam_jobs.chunk import chunk_count, group_count

ROWS = st.integers(1, 200_000_000)


@pytest.mark.parametrize(
    ("rows", "chunks"),
    [
        pytest.param(1, 1, id="one_row"),
        pytest.param(16, 1, id="one_full_chunk"),
        pytest.param(33, 2, id="two_chunks"),
        pytest.param(1_000, 64, id="about_16_rows_each"),
        pytest.param(100_000, 2_048, id="in_between"),
        pytest.param(1_000_000, 4_096, id="about_256_rows_each"),
        pytest.param(50_000_000, 262_144, id="large"),
    ],
)
def test_number_of_chunks(rows: int, chunks: int) -> None:
    assert chunk_count(rows) == chunks


@given(ROWS)
@settings(deadline=None)
def test_number_of_chunks_is_a_power_of_two_of_sensible_size(rows: int) -> None:
    chunks = chunk_count(rows)
    assert chunks.bit_count() == 1
    if rows >= 32:
        assert 8 <= rows / chunks <= 512


@given(ROWS)
@settings(deadline=None)
def test_groups_are_whole_chunks_and_small_enough(rows: int) -> None:
    groups = group_count(rows)
    assert chunk_count(rows) % groups == 0
    assert groups >= min(chunk_count(rows), 1024)
    assert rows / groups <= 32 * 512
