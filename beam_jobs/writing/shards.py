"""Write shards: the records that were dealt to each, with their index."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import google_crc32c
import numpy as np
import numpy.typing as npt
from apache_beam.pvalue import AsSingleton

from beam_jobs.prepare.prepared_chunk import Rejected, records_path
from beam_jobs.prepare.preparer import staged_features
from beam_jobs.prepare.references import hash_words, position
from beam_jobs.sharding.duplicates import Duplicate
from beam_jobs.storage import files
from beam_jobs.storage.checksums import RunningChecksum, checksum
from schemas.example import decode_example, extend_example, parse_example
from schemas.index import IndexRow, RecordIndex
from schemas.manifest import FileChecksum, Shard, index_name, shard_name
from schemas.quarantine import DUPLICATES, QUARANTINE, REJECTED_FEATURES
from schemas.receipt import Label, categories, id_feature, receipt_features
from schemas.statistics import RecordSummary
from schemas.tfrecord import frame, unframe

Vocabularies = Mapping[str, Sequence[str]]
ListedFile = tuple[str, FileChecksum]
Listed = Rejected | Duplicate
_REJECTED_A_FILE = 1000
_DUPLICATES_A_FILE = 100_000
_FILE_BYTES = 1 << 28  # of the quarantine and of duplicates


@dataclass(frozen=True, kw_only=True)
class WrittenShard:
    """A shard that lies in the staging directory, ready to be published."""

    split: str
    number: int
    shard: Shard
    summary: RecordSummary


@dataclass(frozen=True, kw_only=True)
class ShardWriter:
    """Writes shards into `directory`, from the records in the staging directory `prepared`.

    A record that was staged gets the category ids, which are known only now.
    """

    prepared: str
    directory: str
    labels: tuple[Label, ...]

    def write(
        self,
        split: str,
        number: int,
        count: int,
        locations: npt.NDArray[Any],
        vocabularies: Vocabularies,
    ) -> tuple[WrittenShard, RecordIndex]:
        """Writes shard `number` of `count` and its index.

        Args:
          split: the shard's split.
          number: the shard's position in it.
          count: shards of the split.
          locations: ORDERED_LOCATION of each record, in no order.
          vocabularies: category name to its values, sorted.

        Returns:
          The shard and its index.
        """
        names = categories(self.labels)
        staged = staged_features(self.labels)
        ids = [each for each in receipt_features(self.labels) if each not in staged]
        rows: list[IndexRow] = []
        summary = RecordSummary()
        crc = google_crc32c.Checksum()
        offset = 0
        ranges = self._ranges(locations)
        name = shard_name(split, number, count)
        with files.create(files.join(self.directory, name)) as output:
            for (_, start, _), framed in zip(ranges, files.read_ranges(ranges), strict=True):
                payload = unframe(framed, start)
                values = parse_example(staged, payload)
                codes = {
                    each: position(values[f"receipt/{each}"][0].decode(), vocabularies[each])
                    for each in names
                }
                added = {id_feature(each): code for each, code in codes.items()}
                record = frame(extend_example(payload, ids, added))
                output.write(record)
                crc.update(record)
                summary.add(values | {name: [code] for name, code in added.items()})
                rows.append(
                    IndexRow(
                        id=values["image/source_id"][0].decode(),
                        offset=offset,
                        length=len(record),
                        height=values["image/height"][0],
                        width=values["image/width"][0],
                        channels=values["image/channels"][0],
                        categories=codes,
                    )
                )
                offset += len(record)
        index = RecordIndex.of_rows(rows, shard=number, categories=names)
        index_bytes = index.to_bytes()
        files.write(files.join(self.directory, index_name(split, number, count)), index_bytes)
        written = WrittenShard(
            split=split,
            number=number,
            shard=Shard(
                name=name,
                records=len(rows),
                size_bytes=offset,
                crc32c=int.from_bytes(crc.digest(), "big"),
                index_name=index_name(split, number, count),
                index_crc32c=google_crc32c.value(index_bytes),
            ),
            summary=summary,
        )
        return written, index

    def _ranges(self, locations: npt.NDArray[Any]) -> list[tuple[str, int, int]]:
        """(path, offset, length) of each record, in the order that mixes the layouts."""
        ordered = np.sort(locations, order="order", kind="stable")["location"]
        return [
            (records_path(self.prepared, chunk, digest), offset, length)
            for chunk, digest, offset, length in ordered.tolist()
        ]


class WriteQuarantine(beam.PTransform):
    """Rejected to (path relative to `directory`, FileChecksum) of the quarantine's files."""

    def __init__(self, directory: str) -> None:
        super().__init__()
        self._directory = directory

    def expand(self, rejected: beam.PCollection[Rejected]) -> beam.PCollection[ListedFile]:
        return (
            rejected
            | "Files" >> _IntoFiles(_REJECTED_A_FILE, _FILE_BYTES)  # ((file, files), [Rejected])
            | "Write" >> beam.FlatMapTuple(self._write)
        )

    def _write(self, place: tuple[int, int], rejected: Sequence[Rejected]) -> Iterator[ListedFile]:
        suffix = "{:05d}-of-{:05d}".format(*place)
        records = files.join(QUARANTINE, f"rejected.tfrecord-{suffix}")
        lines = files.join(QUARANTINE, f"rejected.jsonl-{suffix}")
        ranges = [(each.file, each.offset, each.length) for each in rejected]
        record_sum, line_sum = RunningChecksum(), RunningChecksum()
        with (
            files.create(files.join(self._directory, records)) as record_file,
            files.create(files.join(self._directory, lines)) as line_file,
        ):
            for framed in files.read_ranges(ranges):
                record_file.write(framed)
                record_sum.update(framed)
                values = decode_example(REJECTED_FEATURES, unframe(framed, 0))
                kept = values["bytes"]
                assert isinstance(kept, bytes)
                line = _json_line({**values, "bytes": len(kept)})
                line_file.write(line)
                line_sum.update(line)
        yield records, record_sum.result()
        yield lines, line_sum.result()


class WriteDuplicates(beam.PTransform):
    """Duplicate to (path relative to `directory`, FileChecksum) of the duplicates' files."""

    def __init__(self, directory: str) -> None:
        super().__init__()
        self._directory = directory

    def expand(self, duplicates: beam.PCollection[Duplicate]) -> beam.PCollection[ListedFile]:
        return (
            duplicates
            | "Files" >> _IntoFiles(_DUPLICATES_A_FILE, _FILE_BYTES)  # ((file, files), [Duplicate])
            | "Write" >> beam.MapTuple(self._write)
        )

    def _write(self, place: tuple[int, int], duplicates: Sequence[Duplicate]) -> ListedFile:
        path = files.join(DUPLICATES, "duplicates.jsonl-{:05d}-of-{:05d}".format(*place))
        data = b"".join(_duplicate_line(each) for each in duplicates)
        files.write(files.join(self._directory, path), data)
        return path, checksum(data)


class _IntoFiles(beam.PTransform):
    """Values to ((file, files), values in a fixed order).

    A file gets about `limit` values, and at most `limit_bytes` bytes unless one value has more.
    Values go to buckets by their hash, and a bucket that is still too large becomes several files.
    """

    def __init__(self, limit: int, limit_bytes: int) -> None:
        super().__init__()
        self._limit = limit
        self._limit_bytes = limit_bytes

    def expand(self, values: beam.PCollection) -> beam.PCollection:
        limit, limit_bytes = self._limit, self._limit_bytes

        def bucket(value: Listed, count: int, size: int) -> tuple[int, Listed]:
            buckets = max(-(-count // limit), -(-size // limit_bytes))
            return value.id_hash * buckets >> 64, value

        count = values | "Count" >> beam.combiners.Count.Globally()
        size = values | "Size" >> beam.Map(_size) | "Total" >> beam.CombineGlobally(sum)
        parts = (
            values
            | "Bucket" >> beam.Map(bucket, count=AsSingleton(count), size=AsSingleton(size))
            | "Group" >> beam.GroupByKey()
            | "Fill" >> beam.FlatMap(_fill, limit_bytes=limit_bytes)
        )  # ((bucket, part), [value])
        numbers = (
            parts
            | "Parts" >> beam.Keys()
            | "AllParts" >> beam.combiners.ToList()
            | "Order" >> beam.Map(lambda keys: {key: at for at, key in enumerate(sorted(keys))})
        )  # (bucket, part) to the number of its file
        return parts | "Number" >> beam.Map(
            lambda part, numbers: ((numbers[part[0]], len(numbers)), part[1]),
            numbers=AsSingleton(numbers),
        )


def _fill(
    bucketful: tuple[int, Iterable[Listed]], *, limit_bytes: int
) -> Iterator[tuple[tuple[int, int], list[Listed]]]:
    """Yields ((bucket, part), values) of each of the files that a bucket takes."""
    bucket, values = bucketful
    part, size = 0, 0
    filled: list[Listed] = []
    for value in sorted(values, key=_order):
        if filled and size + _size(value) > limit_bytes:
            yield (bucket, part), filled
            part, size, filled = part + 1, 0, []
        filled.append(value)
        size += _size(value)
    yield (bucket, part), filled


def _size(value: Listed) -> int:
    """Bytes that a value takes in its file."""
    return value.length if isinstance(value, Rejected) else len(_duplicate_line(value))


def _duplicate_line(duplicate: Duplicate) -> bytes:
    fields = ("id", "duplicate_of", "same_labels")
    return _json_line({name: getattr(duplicate, name) for name in fields})


def _order(value: Listed) -> tuple[tuple[int, int], str]:
    return hash_words(value.id), repr(value)


def _json_line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode() + b"\n"
