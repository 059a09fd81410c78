"""Listings: the files of the quarantine, and of duplicates, beside the shards."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsList

from beam_jobs.prepare.prepared_chunk import Rejected
from beam_jobs.prepare.references import hash_words
from beam_jobs.sharding.duplicates import Duplicate
from beam_jobs.storage import files
from beam_jobs.storage.checksums import RunningChecksum, checksum
from schemas.example import decode_example
from schemas.file_names import DUPLICATES, version_file
from schemas.manifest import FileChecksum
from schemas.quarantine import REJECTED_FEATURES
from schemas.tfrecord import unframe

ListedFile = tuple[str, FileChecksum]
Listed = Rejected | Duplicate
Part = tuple[int, int]  # bin, number of the part in it
_REJECTED_PER_FILE = 1000
_DUPLICATES_PER_FILE = 100_000
_FILE_BYTES = 1 << 28  # of the quarantine and of duplicates


@dataclass(frozen=True, kw_only=True)
class ListedPairs:
    """List of the pairs of near-duplicates.

    Attributes:
      pairs: their number.
      listings: files of the list.
    """

    pairs: int
    listings: tuple[ListedFile, ...]


class WriteQuarantine(beam.PTransform):
    """Rejected to (path relative to `directory`, FileChecksum) of the quarantine's files.

    Args:
      directory: the directory that is written.
      folder: the quarantine's folder in it.
    """

    def __init__(self, directory: str, folder: str) -> None:
        super().__init__()
        self._directory = directory
        self._folder = folder

    def expand(self, rejected: beam.PCollection[Rejected]) -> beam.PCollection[ListedFile]:
        return (
            rejected
            | "Files" >> _IntoFiles(_REJECTED_PER_FILE, _FILE_BYTES)  # ((file, files), [Rejected])
            | "Write" >> beam.FlatMapTuple(self._write)
        )

    def _write(self, file: tuple[int, int], rejected: Sequence[Rejected]) -> Iterator[ListedFile]:
        number, count = file
        suffix = f"{number:05d}-of-{count:05d}"
        records = f"{self._folder}/rejected.tfrecord-{suffix}"
        lines = f"{self._folder}/rejected.jsonl-{suffix}"
        ranges = [(one.file, one.offset, one.length) for one in rejected]
        record_sum, line_sum = RunningChecksum(), RunningChecksum()
        with (
            files.create(files.join(self._directory, records)) as record_file,
            files.create(files.join(self._directory, lines)) as line_file,
        ):
            for framed in files.read_ranges(ranges):
                record_file.write(framed)
                record_sum.update(framed)
                values = decode_example(REJECTED_FEATURES, unframe(framed, 0))
                image = values["bytes"]
                assert isinstance(image, bytes)
                line = json_line({**values, "bytes": len(image)})
                line_file.write(line)
                line_sum.update(line)
        yield records, record_sum.result()
        yield lines, line_sum.result()


class WriteDuplicates(beam.PTransform):
    """Duplicate to (path relative to `directory`, FileChecksum) of the duplicates' files."""

    def __init__(self, directory: str, version: int) -> None:
        super().__init__()
        self._directory = directory
        self._version = version

    def expand(self, duplicates: beam.PCollection[Duplicate]) -> beam.PCollection[ListedFile]:
        return (
            duplicates
            | "Files"
            >> _IntoFiles(_DUPLICATES_PER_FILE, _FILE_BYTES)  # ((file, files), [Duplicate])
            | "Write" >> beam.MapTuple(self._write)
        )

    def _write(self, file: tuple[int, int], duplicates: Sequence[Duplicate]) -> ListedFile:
        number, count = file
        name = f"{DUPLICATES}/duplicates.jsonl-{number:05d}-of-{count:05d}"
        path = version_file(self._version, name)
        data = b"".join(_duplicate_line(duplicate) for duplicate in duplicates)
        files.write(files.join(self._directory, path), data)
        return path, checksum(data)


class _IntoFiles(beam.PTransform):
    """Values to ((file, files), values in a fixed order).

    A file gets about `limit` values, and at most `limit_bytes` bytes unless one value has more.
    Values go to bins, equal ranges of their hash; a bin that is still too large becomes several
    files. With a limit of 1,000, 2,500 values go to 3 bins. If the second bin is too large, its
    parts are (1, 0) and (1, 1), and the files 0 to 3 hold (0, 0), (1, 0), (1, 1) and (2, 0).
    """

    def __init__(self, limit: int, limit_bytes: int) -> None:
        super().__init__()
        self._limit = limit
        self._limit_bytes = limit_bytes

    def expand(self, values: beam.PCollection) -> beam.PCollection:
        limit, limit_bytes = self._limit, self._limit_bytes

        def into_bin(value: Listed, total: tuple[int, int]) -> tuple[int, Listed]:
            count, size = total
            bins = max(-(-count // limit), -(-size // limit_bytes))  # rounded up
            # Hashes are spread evenly over 0 to 2**64: of 4 bins, the hash C0… (three quarters of
            # the way) is in bin 3.
            return (value.id_hash * bins) >> 64, value

        total = (
            values
            | "Size" >> beam.Map(lambda value: (1, _size(value)))
            | "Total" >> beam.CombineGlobally(sum_pairs).as_singleton_view()
        )
        parts = (
            values
            | "IntoBins" >> beam.Map(into_bin, total=total)
            | "Group" >> beam.GroupByKey()
            | "Fill" >> beam.FlatMap(_fill, limit_bytes=limit_bytes)
        )  # ((bin, part), [value])
        return parts | "Number" >> beam.Map(
            _number, all_parts=AsList(parts | "Parts" >> beam.Keys())
        )


def sum_pairs(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Sums of the first and of the second numbers."""
    first, second = zip((0, 0), *pairs, strict=True)
    return sum(first), sum(second)


def _number(
    filled: tuple[Part, list[Listed]], all_parts: Sequence[Part]
) -> tuple[tuple[int, int], list[Listed]]:
    """Gives a part the number of its file, its place among all."""
    part, values = filled
    return (sum(other < part for other in all_parts), len(all_parts)), values


def _fill(
    keyed: tuple[int, Iterable[Listed]], *, limit_bytes: int
) -> Iterator[tuple[Part, list[Listed]]]:
    """Yields ((bin, part), values) of each of the files that a bin takes."""
    bin_, values = keyed
    part, size = 0, 0
    filled: list[Listed] = []
    for value in sorted(values, key=_order):
        if filled and size + _size(value) > limit_bytes:
            yield (bin_, part), filled
            part, size, filled = part + 1, 0, []
        filled.append(value)
        size += _size(value)
    yield (bin_, part), filled


def _size(value: Listed) -> int:
    """Bytes that a value takes in its file."""
    return value.length if isinstance(value, Rejected) else len(_duplicate_line(value))


def _duplicate_line(duplicate: Duplicate) -> bytes:
    fields = ("id", "duplicate_of", "same_labels")
    return json_line({name: getattr(duplicate, name) for name in fields})


def _order(value: Listed) -> tuple[tuple[int, int], str]:
    return hash_words(value.id), repr(value)


def json_line(values: Mapping[str, Any]) -> bytes:
    """Makes a line of a listing."""
    return json.dumps(values, ensure_ascii=False).encode() + b"\n"
