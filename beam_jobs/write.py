"""Write shards: the records that were dealt to each, with their index."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import google_crc32c
import numpy as np
import numpy.typing as npt

from beam_jobs import files
from beam_jobs.deduplicate import Duplicate
from beam_jobs.prepare import staged_features
from beam_jobs.prepared import Rejected, records_path
from beam_jobs.references import hash_words
from schemas.example import decode_example, extend_example, parse_example
from schemas.index import RecordIndex
from schemas.manifest import Shard, index_name, shard_name
from schemas.quarantine import DUPLICATES, QUARANTINE, REJECTED_FEATURES
from schemas.receipt import Label, categories, id_feature, receipt_features
from schemas.statistics import RecordSummary
from schemas.tfrecord import frame, unframe

Vocabularies = Mapping[str, Sequence[str]]
_REJECTED_A_FILE = 1000
_DUPLICATES_A_FILE = 100_000


@dataclass(frozen=True, kw_only=True)
class WrittenShard:
    """A shard that lies in the staging directory, ready to be published."""

    split: str
    number: int
    shard: Shard
    category_counts: Mapping[str, Mapping[int, int]]
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
    ) -> WrittenShard:
        """Writes shard `number` of `count` and its index.

        Args:
          split: the shard's split.
          number: the shard's position in it.
          count: shards of the split.
          locations: ORDERED_LOCATION of each record, in no order.
          vocabularies: category name to its values.
        """
        names = categories(self.labels)
        staged = staged_features(self.labels)
        ids = [each for each in receipt_features(self.labels) if each not in staged]
        position = {
            name: {value.encode(): at for at, value in enumerate(vocabularies[name])}
            for name in names
        }
        rows: list[dict[str, Any]] = []
        summary = RecordSummary()
        crc = google_crc32c.Checksum()
        offset = 0
        ranges = self._ranges(locations)
        name = shard_name(split, number, count)
        with files.create(files.join(self.directory, name)) as output:
            for (_, start, _), framed in zip(ranges, files.read_ranges(ranges), strict=True):
                payload = unframe(framed, start)
                values = parse_example(staged, payload)
                codes = {each: position[each][values[f"receipt/{each}"][0]] for each in names}
                added = {id_feature(each): code for each, code in codes.items()}
                record = frame(extend_example(payload, ids, added))
                output.write(record)
                crc.update(record)
                summary.add(values | {name: [code] for name, code in added.items()})
                rows.append(
                    {
                        "id": values["image/source_id"][0].decode(),
                        "offset": offset,
                        "length": len(record),
                        **{
                            side: values[f"image/{side}"][0]
                            for side in ("height", "width", "channels")
                        },
                        **codes,
                    }
                )
                offset += len(record)
        index = RecordIndex.of_rows(rows, shard=number, categories=names)
        index_bytes = index.to_bytes()
        files.write(files.join(self.directory, index_name(split, number, count)), index_bytes)
        return WrittenShard(
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
            category_counts={
                name: dict(
                    zip(*(a.tolist() for a in np.unique(codes, return_counts=True)), strict=True)
                )
                for name, codes in index.categories.items()
            },
            summary=summary,
        )

    def _ranges(self, locations: npt.NDArray[Any]) -> list[tuple[str, int, int]]:
        """(path, offset, length) of each record, in the order that mixes the layouts."""
        ordered = np.sort(locations, order="order", kind="stable")["location"]
        return [
            (records_path(self.prepared, chunk, digest), offset, length)
            for chunk, digest, offset, length in ordered.tolist()
        ]


class WriteQuarantine(beam.PTransform):
    """Rejected to the paths of the quarantine's files, relative to `directory`."""

    def __init__(self, directory: str) -> None:
        super().__init__()
        self._directory = directory

    def expand(self, rejected: beam.PCollection[Rejected]) -> beam.PCollection[str]:
        return (
            rejected
            | "Files" >> _IntoFiles(_REJECTED_A_FILE)  # ((file, files), [Rejected])
            | "Write" >> beam.FlatMapTuple(self._write)
        )

    def _write(self, place: tuple[int, int], rejected: Sequence[Rejected]) -> Iterator[str]:
        suffix = "{:05d}-of-{:05d}".format(*place)
        records = files.join(QUARANTINE, f"rejected.tfrecord-{suffix}")
        lines = files.join(QUARANTINE, f"rejected.jsonl-{suffix}")
        ranges = [(each.file, each.offset, each.length) for each in rejected]
        with (
            files.create(files.join(self._directory, records)) as record_file,
            files.create(files.join(self._directory, lines)) as line_file,
        ):
            for framed in files.read_ranges(ranges):
                record_file.write(framed)
                values = decode_example(REJECTED_FEATURES, unframe(framed, 0))
                kept = values["bytes"]
                assert isinstance(kept, bytes)
                line_file.write(_json_line({**values, "bytes": len(kept)}))
        yield records
        yield lines


class WriteDuplicates(beam.PTransform):
    """Duplicate to the paths of the duplicates' files, relative to `directory`."""

    def __init__(self, directory: str) -> None:
        super().__init__()
        self._directory = directory

    def expand(self, duplicates: beam.PCollection[Duplicate]) -> beam.PCollection[str]:
        return (
            duplicates
            | "Files" >> _IntoFiles(_DUPLICATES_A_FILE)  # ((file, files), [Duplicate])
            | "Write" >> beam.MapTuple(self._write)
        )

    def _write(self, place: tuple[int, int], duplicates: Sequence[Duplicate]) -> str:
        path = files.join(DUPLICATES, "duplicates.jsonl-{:05d}-of-{:05d}".format(*place))
        fields = ("id", "duplicate_of", "same_labels")
        lines = [_json_line({name: getattr(each, name) for name in fields}) for each in duplicates]
        files.write(files.join(self._directory, path), b"".join(lines))
        return path


class _IntoFiles(beam.PTransform):
    """Values to ((file, files), values in a fixed order), about `limit` values a file."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def expand(self, values: beam.PCollection) -> beam.PCollection:
        limit = self._limit
        count = beam.pvalue.AsSingleton(values | "Count" >> beam.combiners.Count.Globally())

        def place(
            value: Rejected | Duplicate, count: int
        ) -> tuple[tuple[int, int], Rejected | Duplicate]:
            total = -(-count // limit)
            return (value.word * total >> 64, total), value

        return (
            values
            | "Place" >> beam.Map(place, count=count)
            | "Group" >> beam.GroupByKey()
            | "Sort" >> beam.MapTuple(lambda place, values: (place, sorted(values, key=_order)))
        )


def _order(value: Rejected | Duplicate) -> tuple[tuple[int, int], str]:
    return hash_words(value.id), repr(value)


def _json_line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode() + b"\n"
