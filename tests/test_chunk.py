"""Chunks: equal ranges of the hash, in its order, of a sensible size."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("apache_beam")

from beam_jobs.chunk import chunk_count, chunk_of, chunks_per_block

ROWS = st.integers(1, 200_000_000)
WORD = st.integers(0, 2**64 - 1)


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


@given(st.lists(WORD, min_size=2), st.integers(0, 20))
@settings(deadline=None)
def test_chunks_are_in_the_order_of_the_words(words: list[int], exponent: int) -> None:
    chunks = 1 << exponent
    numbers = [chunk_of(word, chunks) for word in sorted(words)]
    assert numbers == sorted(numbers)
    assert 0 <= numbers[0] <= numbers[-1] < chunks


@pytest.mark.parametrize("chunks", [1, 2, 4096])
def test_chunks_are_equal_ranges(chunks: int) -> None:
    width = 2**64 // chunks
    for number in (0, chunks // 2, chunks - 1):
        assert chunk_of(number * width, chunks) == number
        assert chunk_of((number + 1) * width - 1, chunks) == number


@given(ROWS)
@settings(deadline=None)
def test_blocks_hold_some_65536_rows(rows: int) -> None:
    block_rows = chunks_per_block(rows) * rows / chunk_count(rows)
    assert chunks_per_block(rows) >= 1
    assert block_rows <= 65_536
    if rows > 65_536:
        assert block_rows > 32_768
