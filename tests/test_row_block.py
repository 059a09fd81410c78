"""Blocks of rows: what is packed comes out again, in the ranges of its hash."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("apache_beam")

from beam_jobs.chunk import chunk_count
from beam_jobs.row_block import RowBlock, into_chunks, into_groups

ROWS = st.lists(
    st.tuples(st.integers(0, 2**64 - 1), st.binary(min_size=1).filter(lambda b: b"\n" not in b)),
    min_size=1,
    max_size=60,
)


def block_of(rows: list[tuple[int, bytes]]) -> RowBlock:
    return RowBlock.of([word for word, _ in rows], [line for _, line in rows])


@given(ROWS)
@settings(deadline=None)
def test_lines_come_out_as_they_went_in(rows: list[tuple[int, bytes]]):
    block = block_of(rows)
    assert len(block) == len(rows)
    assert block.lines() == [line for _, line in rows]


@given(ROWS, st.integers(0, 12))
@settings(deadline=None)
def test_ranges_are_those_of_the_hash(rows: list[tuple[int, bytes]], bits: int):
    found = [
        (number, line, int(word))
        for number, lines, words in block_of(rows).by_range(1 << bits)
        for line, word in zip(lines, words, strict=True)
    ]
    expected = [((word << bits) >> 64, line, word) for word, line in rows]
    assert sorted(found) == sorted(expected)


@given(ROWS, st.integers(1, 10_000_000))
@settings(deadline=None)
def test_groups_and_chunks_keep_every_row(rows: list[tuple[int, bytes]], inputs: int):
    half = len(rows) // 2
    groups: dict[int, list[RowBlock]] = {}
    for part in filter(None, (rows[:half], rows[half:])):
        for number, block in into_groups(block_of(part), inputs):
            groups.setdefault(number, []).append(block)
    chunks = [chunk for group in groups.items() for chunk in into_chunks(group, inputs)]
    assert sorted(line for _, lines in chunks for line in lines) == sorted(b for _, b in rows)
    numbers = [number for number, _ in chunks]
    assert len(set(numbers)) == len(numbers)  # a chunk's rows come together
    assert max(numbers) < chunk_count(inputs)
