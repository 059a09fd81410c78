"""Row files: rows go to the workers that prepare them through staging files, not by a shuffle.

A runner holds what it shuffles in memory, several times over, and a row with all its boxes has some
kilobytes. So a worker that reads the source writes rows to a file, in the order of their hash, and
the runner shuffles only byte ranges. A bucket is a range of the hash, so its rows lie side by side:

    hash     03 1A 2F | 41 58 6D | 80 9C F3
    frame    0        | 1        | 2

With four buckets, that of 40 to 7F has frame 1. The bucket of 80 to BF has frame 2 and reads one
row (F3) that is not its own: a frame, the unit of compression, may hold rows of several buckets.
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
from beam_jobs.prepare.chunks import bucket_count, chunk_count, range_shift
from beam_jobs.prepare.references import hash_words
from beam_jobs.prepare.repeated_ids import NO_REPEATS, Repeats
from beam_jobs.prepare.staging import Staging
from beam_jobs.shown import shown
from beam_jobs.sources.row import Row
from beam_jobs.storage import files
from beam_jobs.storage.files import ByteRange

_FILE_BYTES = 1 << 23  # of uncompressed rows, held by one worker
_MAX_ROWS = 1 << 20  # of a bucket, 64 times what different ids give it
_FRAME_BYTES = 1 << 14  # of uncompressed rows, read as a whole
_COUNT, _HASH = struct.Struct("<I"), struct.Struct("<Q")

HashedRow = tuple[int, bytes]  # first 64 bits of the id's hash, serialized row


@dataclass(frozen=True, kw_only=True, eq=False)
class RowFile:
    """A staging file of rows in the order of their hash, in compressed frames.

    Attributes:
      path: where it lies, named by its contents.
      rows: number of its rows.
      first, last: uint64 [frames], hash of each frame's first and last row.
      end: int64 [frames], byte at which each frame ends.
      repeats: number of its rows whose id a row before has, and one of them.
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
    def write(cls, staging: Staging, rows: Iterable[HashedRow]) -> "RowFile":
        """Writes a file of at least one row."""
        # By hash, and by line where hashes are equal: rows that come in another order make the same
        # file, so a bundle that is tried again replaces its file.
        ordered = sorted(rows)
        digest = hashlib.sha256()
        for id_hash, line in ordered:
            digest.update(_HASH.pack(id_hash) + line + b"\n")
        path = staging.rows(digest.hexdigest())
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

    def hashes(self) -> npt.NDArray[np.uint64]:
        """Reads the hash of each row."""
        return np.array([id_hash for id_hash, _ in _unpack(files.read(self.path))], np.uint64)

    def ranges(self, inputs: int) -> Iterator[tuple[int, ByteRange]]:
        """Yields (bucket, range of the file with its rows) for each of the buckets of all inputs.

        A bucket's frames go from the first that ends at or above its smallest hash to the last that
        begins below that of the next bucket. In the example of this module, bucket 2 of four begins
        at 80: frame 2 is the first whose last hash (F3) is not below.
        """
        smallest = _smallest_hashes(bucket_count(inputs))
        first_frames = np.searchsorted(self.last, smallest)
        end_frames = np.append(np.searchsorted(self.first, smallest[1:]), len(self.first))
        frame_starts = np.concatenate([[0], self.end])
        for bucket in np.flatnonzero(first_frames < end_frames).tolist():
            start = int(frame_starts[first_frames[bucket]])
            end = int(frame_starts[end_frames[bucket]])
            yield bucket, (self.path, start, end - start)


class WriteRows(beam.DoFn):
    """Row to RowFile, for the rows of a bundle."""

    def __init__(self, staging: Staging, seed: int) -> None:
        self._staging = staging
        self._seed = seed

    def start_bundle(self) -> None:
        self._rows: list[HashedRow] = []
        self._size_bytes = 0

    def process(self, row: Row) -> Iterator[RowFile]:
        line = row.to_bytes()
        self._rows.append((hash_words(row.id, seed=self._seed)[0], line))
        self._size_bytes += len(line)
        if self._size_bytes >= _FILE_BYTES:
            yield RowFile.write(self._staging, self._rows)
            self.start_bundle()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._rows:
            window = GlobalWindow()
            file = RowFile.write(self._staging, self._rows)
            yield WindowedValue(file, window.max_timestamp(), [window])


def read_chunks(bucket: int, ranges: Iterable[ByteRange], inputs: int) -> dict[int, list[bytes]]:
    """Reads a bucket's rows: chunk to its serialized rows.

    Raises:
      BuildError: the bucket has many times the rows that different ids would give it.
    """
    bucket_shift = range_shift(bucket_count(inputs))
    chunk_shift = range_shift(chunk_count(inputs))
    chunks: dict[int, list[bytes]] = {}
    count = 0
    for data in files.read_ranges(sorted(ranges)):
        for id_hash, line in _unpack(data):
            # Of four buckets the shift is 62: F3… begins with the bits 11, so it is of bucket 3.
            # The frames at both ends of a range may hold rows of its neighbors.
            if id_hash >> bucket_shift == bucket:
                chunks.setdefault(id_hash >> chunk_shift, []).append(line)
                count += 1
        if count > _MAX_ROWS:
            raise BuildError(
                f"more than {_MAX_ROWS:,} inputs have the same few ids, such as "
                f"{shown(Row.from_bytes(line).id)}, and one worker would have to hold them all: "
                "give every receipt its own id"
            )
    return chunks


def _repeats(rows: Sequence[HashedRow]) -> Repeats:
    """Counts the rows whose hash a row before has, among rows in the order of their hash."""
    # From the end: of each pair, the later row comes first.
    repeated = [line for (later, line), (earlier, _) in pairwise(rows[::-1]) if later == earlier]
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
    """Compresses a frame: the number of rows, their hashes, then their lines.

    A frame of the rows (7, b"{…}") and (9, b"{…}") is, before compression, 02 00 00 00, eight bytes
    for 7, eight for 9, and the two lines with a line feed between: JSON holds no raw line feed.
    """
    hashes = np.array([id_hash for id_hash, _ in frame], "<u8").tobytes()
    lines = b"\n".join(line for _, line in frame)
    # Level 1, the fastest: the file is written once and, but for the borders of buckets, read once.
    return zlib.compress(_COUNT.pack(len(frame)) + hashes + lines, 1)


def _unpack(data: bytes) -> Iterator[HashedRow]:
    """Yields the rows of compressed frames that lie one after the other.

    A zlib stream knows its end: what follows in the file is `unused_data`, the next frame.
    """
    while data:
        decompressor = zlib.decompressobj()
        frame = decompressor.decompress(data)
        data = decompressor.unused_data
        [count] = _COUNT.unpack_from(frame)
        hashes = np.frombuffer(frame, "<u8", count, _COUNT.size)
        lines = frame[_COUNT.size + hashes.nbytes :].split(b"\n")
        yield from zip(hashes.tolist(), lines, strict=True)


def _smallest_hashes(ranges: int) -> npt.NDArray[np.uint64]:
    """Smallest hash of each of a number of equal ranges, uint64 [ranges]; 0 and 2**63 of two."""
    # Python's integers, as 2**64 does not fit 64 bits. Then uint64 like the hashes: NumPy would
    # compare int64 with them as float64, whose 53 bits confuse hashes at the border of two buckets.
    return np.array([(number << 64) // ranges for number in range(ranges)], np.uint64)
