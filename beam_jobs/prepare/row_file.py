"""Rows on their way to whoever prepares them: through staging files, never through a shuffle.

A runner holds what it shuffles in memory, several times over. Of a row, with all its boxes, it
gets no more than the range of the file where it lies.
"""

import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import apache_beam as beam
import numpy as np
import numpy.typing as npt
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.errors import BuildError
from beam_jobs.prepare.chunks import chunk_count, group_count
from beam_jobs.prepare.references import hash_words
from beam_jobs.prepare.repeated_ids import NO_REPEATS, Repeats
from beam_jobs.sources.row import Row
from beam_jobs.storage import files
from beam_jobs.storage.files import ByteRange

_FILE_BYTES = 1 << 23  # of uncompressed rows, held by one worker
_MOST_ROWS = 1 << 20  # of a group, 64 times what different ids give it
_FRAME_BYTES = 1 << 14  # of uncompressed rows, read as a whole
_COUNT, _WORD = struct.Struct("<I"), struct.Struct("<Q")

HashedRow = tuple[int, bytes]  # first word of the id's hash, serialised row


@dataclass(frozen=True, kw_only=True, eq=False)
class RowFile:
    """A staging file of rows in the order of their hash, in compressed frames.

    Attributes:
      path: where it lies, named by its contents.
      rows: how many it holds.
      first, last: uint64 [frames], hash of each frame's first and last row.
      end: int64 [frames], byte at which each frame ends.
      repeats: how many of its rows have the id of a row before, and one of them.
    """

    path: str
    rows: int
    first: npt.NDArray[np.uint64]
    last: npt.NDArray[np.uint64]
    end: npt.NDArray[np.int64]
    repeats: Repeats

    def __len__(self) -> int:
        return self.rows

    @classmethod
    def write(cls, directory: str, rows: Iterable[HashedRow]) -> "RowFile":
        """Writes a file of at least one row."""
        ordered = sorted(rows)
        digest = hashlib.sha256()
        for word, line in ordered:
            digest.update(_WORD.pack(word) + line + b"\n")
        path = files.join(directory, digest.hexdigest())
        first, last, sizes = [], [], []
        with files.create(path) as file:
            for frame in _frames(ordered):
                first.append(frame[0][0])
                last.append(frame[-1][0])
                packed = _pack(frame)
                file.write(packed)
                sizes.append(len(packed))
        return cls(
            path=path,
            rows=len(ordered),
            first=np.array(first, np.uint64),
            last=np.array(last, np.uint64),
            end=np.cumsum(sizes, dtype=np.int64),
            repeats=_repeats(ordered),
        )

    def ranges(self, inputs: int) -> Iterator[tuple[int, ByteRange]]:
        """Yields (group, range of the file that holds its rows) for groups of `inputs` rows."""
        lows = _lows(group_count(inputs))
        begins = np.searchsorted(self.last, lows)
        ends = np.append(np.searchsorted(self.first, lows[1:]), len(self.first))
        starts = np.concatenate([[0], self.end])
        for group in np.flatnonzero(begins < ends).tolist():
            start = int(starts[begins[group]])
            yield group, (self.path, start, int(starts[ends[group]]) - start)


class WriteRows(beam.DoFn):
    """Row to RowFile, of the rows that happen to come together."""

    def __init__(self, directory: str, seed: int) -> None:
        self._directory = directory
        self._seed = seed

    def start_bundle(self) -> None:
        self._rows: list[HashedRow] = []
        self._size_bytes = 0

    def process(self, row: Row) -> Iterator[RowFile]:
        line = row.to_bytes()
        self._rows.append((hash_words(row.id, seed=self._seed)[0], line))
        self._size_bytes += len(line)
        if self._size_bytes >= _FILE_BYTES:
            yield RowFile.write(self._directory, self._rows)
            self.start_bundle()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._rows:
            window = GlobalWindow()
            file = RowFile.write(self._directory, self._rows)
            yield WindowedValue(file, window.max_timestamp(), [window])


def read_chunks(group: int, ranges: Iterable[ByteRange], inputs: int) -> dict[int, list[bytes]]:
    """Serialised rows of each chunk of a group, by the chunk's number.

    Raises:
      BuildError: the group has many times the rows that different ids would give it.
    """
    group_shift, chunk_shift = (
        65 - count(inputs).bit_length() for count in (group_count, chunk_count)
    )
    chunks: dict[int, list[bytes]] = {}
    count = 0
    for data in files.read_ranges(sorted(ranges)):
        for word, line in _unpack(data):
            if word >> group_shift == group:
                chunks.setdefault(word >> chunk_shift, []).append(line)
                count += 1
        if count > _MOST_ROWS:
            raise BuildError(
                f"more than {_MOST_ROWS:,} inputs have the same few ids, such as "
                f"{Row.from_bytes(line).id!r}, and one worker would have to hold them all: give "
                "every receipt its own id"
            )
    return chunks


def _repeats(rows: Sequence[HashedRow]) -> Repeats:
    """Repeats among rows in the order of their hash."""
    repeated = [line for (word, line), (last, _) in pairwise(rows[::-1]) if word == last]
    return (len(repeated), repeated[0]) if repeated else NO_REPEATS


def _frames(rows: Iterable[HashedRow]) -> Iterator[list[HashedRow]]:
    frame, size_bytes = [], 0
    for row in rows:
        frame.append(row)
        size_bytes += len(row[1])
        if size_bytes >= _FRAME_BYTES:
            yield frame
            frame, size_bytes = [], 0
    if frame:
        yield frame


def _pack(frame: Sequence[HashedRow]) -> bytes:
    words = np.array([word for word, _ in frame], "<u8").tobytes()
    lines = b"\n".join(line for _, line in frame)
    return zlib.compress(_COUNT.pack(len(frame)) + words + lines, 1)


def _unpack(data: bytes) -> Iterator[HashedRow]:
    """Rows of frames that lie one after the other."""
    while data:
        decompressor = zlib.decompressobj()
        frame = decompressor.decompress(data)
        data = decompressor.unused_data
        [count] = _COUNT.unpack_from(frame)
        words = np.frombuffer(frame, "<u8", count, _COUNT.size)
        lines = frame[_COUNT.size + words.nbytes :].split(b"\n")
        yield from zip(words.tolist(), lines, strict=True)


def _lows(ranges: int) -> npt.NDArray[np.uint64]:
    """Smallest hash of each of so many equal ranges, a power of two."""
    return np.array([(number << 64) // ranges for number in range(ranges)], np.uint64)
