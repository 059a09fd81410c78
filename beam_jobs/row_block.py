"""Rows on their way through the shuffle: many together, compressed to some 20 bytes each.

A runner pays for every element it groups, in time and several times over in memory; a row alone
would cost kilobytes.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import apache_beam as beam
import numpy as np
import numpy.typing as npt
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.chunk import chunk_count, group_count
from beam_jobs.references import hash_words
from beam_jobs.row import Row

_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True, kw_only=True, eq=False)
class RowBlock:
    """Serialised rows, and the first word of each one's id hash: uint64 [n]."""

    words: npt.NDArray[np.uint64]
    packed: bytes

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def of(cls, words: Sequence[int] | npt.NDArray[np.uint64], lines: Iterable[bytes]) -> Self:
        """Packs lines, none of which may hold a line break."""
        return cls(words=np.asarray(words, np.uint64), packed=zlib.compress(b"\n".join(lines), 1))

    def lines(self) -> list[bytes]:
        """The rows' serialised forms."""
        return zlib.decompress(self.packed).split(b"\n") if len(self) else []

    def by_range(self, ranges: int) -> Iterator[tuple[int, list[bytes], npt.NDArray[np.uint64]]]:
        """Yields the rows of each of so many equal ranges of the hash: number, lines, words.

        `ranges` must be a power of two.
        """
        bits = ranges.bit_length() - 1
        number = self.words >> np.uint64(64 - bits) if bits else np.zeros_like(self.words)
        order = np.argsort(number, kind="stable")
        lines = self.lines()
        numbers, firsts = np.unique(number[order], return_index=True)
        for each, rows in zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True):
            yield each, [lines[row] for row in rows.tolist()], self.words[rows]


class PackRows(beam.DoFn):
    """Row to RowBlock, of the rows that happen to come together."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def start_bundle(self) -> None:
        self._words: list[int] = []
        self._lines: list[bytes] = []

    def process(self, row: Row) -> Iterator[RowBlock]:
        self._words.append(hash_words(row.id, seed=self._seed)[0])
        self._lines.append(row.to_bytes())
        if len(self._lines) >= _BLOCK_ROWS:
            yield RowBlock.of(self._words, self._lines)
            self.start_bundle()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._lines:
            window = GlobalWindow()
            block = RowBlock.of(self._words, self._lines)
            yield WindowedValue(block, window.max_timestamp(), [window])


def into_groups(block: RowBlock, inputs: int) -> Iterator[tuple[int, RowBlock]]:
    """Cuts a block into its parts of each group of chunks."""
    for number, lines, words in block.by_range(group_count(inputs)):
        yield number, RowBlock.of(words, lines)


def into_chunks(
    group: tuple[int, Iterable[RowBlock]], inputs: int
) -> Iterator[tuple[int, list[bytes]]]:
    """Cuts a group into its chunks: number and serialised rows."""
    blocks = list(group[1])
    whole = RowBlock.of(
        np.concatenate([block.words for block in blocks]),
        (line for block in blocks for line in block.lines()),
    )
    for number, lines, _ in whole.by_range(chunk_count(inputs)):
        yield number, lines
