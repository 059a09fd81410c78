"""Re-reads a dataset directory and names every fault: `python -m beam_jobs.verify DIR`."""

import argparse
import hashlib
import io
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from google.protobuf import text_format
from google.protobuf.message import DecodeError
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tqdm import tqdm

from beam_jobs import files
from beam_jobs.output import read_manifest
from beam_jobs.runner import RunnerError, beam_options
from schemas.example import decode_example
from schemas.index import RecordIndex
from schemas.manifest import (
    COMPLETED,
    MANIFEST,
    SCHEMA,
    STATISTICS,
    Manifest,
    Shard,
    dealt_histogram,
    is_dataset_file,
)
from schemas.quarantine import DUPLICATES, QUARANTINE, REJECTED_FEATURES
from schemas.receipt import LAYOUT, id_feature
from schemas.tfrecord import CorruptRecordError, read_records, unframe


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is wrong, and where: file, and if it is a record's, its number and byte offset."""

    file: str
    message: str
    record: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        place = "" if self.record is None else f", record {self.record} at byte {self.offset}"
        return f"{self.file}{place}: {self.message}"


@dataclass(kw_only=True)
class _ShardCheck:
    """Faults of one shard, and its counts for the checks of the whole."""

    faults: list[Fault] = field(default_factory=list)
    category_counts: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    id_hashes: list[int] = field(default_factory=list)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns 0 if the directory is sound, 1 if it has faults."""
    parser = argparse.ArgumentParser(prog="python -m beam_jobs.verify", description=__doc__)
    parser.add_argument("directory", help="dataset directory, on any file system that Beam knows")
    parser.add_argument("--workers", type=int, help="processes (default: one a core)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    known, others = parser.parse_known_args(argv)
    try:
        options = beam_options(others)
    except RunnerError as error:
        parser.error(str(error))
    FileSystems.set_options(options)
    count = 0
    for fault in verify(
        known.directory, workers=known.workers, options=options, progress=not known.quiet
    ):
        print(fault)
        count += 1
    if count:
        print(f"{known.directory} has {count} fault{'s' if count > 1 else ''}", file=sys.stderr)
        return 1
    manifest = read_manifest(known.directory)
    shards = sum(len(split.shards) for split in manifest.splits.values())
    print(
        f"{known.directory} is sound: {manifest.counts.written:,} records in {shards:,} shards, "
        f"{len(manifest.vocabularies[LAYOUT]):,} layouts, each within one record of its fair "
        "share in every shard"
    )
    return 0


def verify(
    directory: str,
    *,
    workers: int | None = None,
    options: PipelineOptions | None = None,
    progress: bool = False,
) -> Iterator[Fault]:
    """Yields every fault of a dataset directory.

    Args:
      directory: the dataset directory.
      workers: processes that read shards; None for one a core.
      options: Beam's options, such as those for S3.
      progress: whether to show a bar on standard error.
    """
    completed = files.join(directory, COMPLETED)
    if not files.exists(completed):
        yield Fault(file=completed, message="is not there: no finished dataset, build it again")
        return
    try:
        manifest = read_manifest(directory)
    except (OSError, ValueError) as error:
        yield Fault(file=files.join(directory, MANIFEST), message=str(error))
        return
    if files.read(completed).decode(errors="replace").strip() != manifest.digest:
        yield Fault(file=completed, message="belongs to another manifest than the one beside it")
    yield from _check_names(directory, manifest)
    yield from _check_descriptions(directory)
    yield from _check_listings(directory, manifest)

    tasks = [
        (directory, manifest, name, number)
        for name, split in manifest.splits.items()
        for number in range(len(split.shards))
    ]
    checks: dict[str, list[_ShardCheck]] = {name: [] for name in manifest.splits}
    workers = min(workers or len(os.sched_getaffinity(0)), len(tasks))
    with ProcessPoolExecutor(
        workers,
        multiprocessing.get_context("spawn"),  # a fork would inherit the clients' connections
        initializer=_start_worker,
        initargs=(options or PipelineOptions([]),),
    ) as pool:
        results = pool.map(_check_shard, *zip(*tasks, strict=True))
        for task, check in zip(
            tasks,
            tqdm(results, total=len(tasks), unit=" shards", disable=not progress),
            strict=True,
        ):
            checks[task[2]].append(check)
            yield from check.faults
    yield from _check_whole(directory, manifest, checks)


def _start_worker(options: PipelineOptions) -> None:
    FileSystems.set_options(options)


def _check_names(directory: str, manifest: Manifest) -> Iterator[Fault]:
    expected = {MANIFEST, SCHEMA, STATISTICS, COMPLETED}
    for split in manifest.splits.values():
        expected.update(name for each in split.shards for name in (each.name, each.index_name))
    root = directory.rstrip("/") + "/"
    for metadata in files.list_files(files.join(directory, "**")):
        name = metadata.path.removeprefix(root)
        listed = name in expected or name.startswith((QUARANTINE + "/", DUPLICATES + "/"))
        if is_dataset_file(name) and not listed:
            yield Fault(file=metadata.path, message="is not in the manifest")


def _check_descriptions(directory: str) -> Iterator[Fault]:
    def parse_schema(data: bytes) -> None:
        text_format.Parse(data.decode(), schema_pb2.Schema())

    for name, parse in (
        (SCHEMA, parse_schema),
        (STATISTICS, statistics_pb2.DatasetFeatureStatisticsList.FromString),
    ):
        path = files.join(directory, name)
        try:
            parse(files.read(path))
        except (OSError, ValueError, text_format.ParseError, DecodeError) as error:
            yield Fault(file=path, message=f"can't be read: {error}")


def _check_listings(directory: str, manifest: Manifest) -> Iterator[Fault]:
    found = {"rejected.tfrecord": 0, "rejected.jsonl": 0, "duplicates.jsonl": 0}
    for folder in (QUARANTINE, DUPLICATES):
        for metadata in files.list_files(files.join(directory, folder, "*")):
            kind = metadata.path.rpartition("/")[2].rpartition("-of-")[0].rpartition("-")[0]
            data = files.read(metadata.path)
            if kind == "rejected.tfrecord":
                try:
                    for place in read_records(io.BytesIO(data)):
                        found[kind] += 1
                        decode_example(REJECTED_FEATURES, place[1])
                except CorruptRecordError as error:
                    yield Fault(
                        file=metadata.path,
                        record=found[kind],
                        offset=error.offset,
                        message=str(error),
                    )
                except ValueError as error:
                    yield Fault(
                        file=metadata.path,
                        record=found[kind] - 1,
                        offset=place[0],
                        message=str(error),
                    )
            elif kind in found:
                found[kind] += data.count(b"\n")
    rejected = sum(manifest.counts.quarantined.values())
    for kind, wanted in (
        ("rejected.tfrecord", rejected),
        ("rejected.jsonl", rejected),
        ("duplicates.jsonl", manifest.counts.duplicates),
    ):
        if found[kind] != wanted:
            folder = DUPLICATES if kind.startswith("duplicates") else QUARANTINE
            yield Fault(
                file=files.join(directory, folder),
                message=f"{kind} files hold {found[kind]} entries, the manifest counts {wanted}",
            )


def _check_shard(directory: str, manifest: Manifest, split: str, number: int) -> _ShardCheck:
    shard = manifest.splits[split].shards[number]
    check = _ShardCheck()
    index = _check_index(directory, manifest, shard, number, check)
    path = files.join(directory, shard.name)
    try:
        data = files.read(path)
    except Exception as error:  # each file system raises its own kind of error
        check.faults.append(Fault(file=path, message=f"can't be read: {error}"))
        return check
    if len(data) != shard.size_bytes:
        check.faults.append(
            Fault(file=path, message=f"has {len(data)} bytes, the manifest says {shard.size_bytes}")
        )
    if google_crc32c.value(data) != shard.crc32c:
        check.faults.append(Fault(file=path, message="has another checksum than in the manifest"))
    if index is not None:
        _check_records(path, data, index, manifest, check)
    return check


def _check_index(
    directory: str, manifest: Manifest, shard: Shard, number: int, check: _ShardCheck
) -> RecordIndex | None:
    path = files.join(directory, shard.index_name)

    def fault(message: str) -> None:
        check.faults.append(Fault(file=path, message=message))

    try:
        data = files.read(path)
        index = RecordIndex.from_bytes(data)
    except Exception as error:  # each file system raises its own kind of error
        fault(f"can't be read: {error}")
        return None
    if google_crc32c.value(data) != shard.index_crc32c:
        fault("has another checksum than in the manifest")
    if len(index) != shard.records:
        fault(f"lists {len(index)} records, the manifest says {shard.records}")
    if (index.shard != number).any():
        fault(f"lists records of other shards than {number}")
    ends = index.offset + index.length
    if len(index) and (index.offset[0] != 0 or (index.offset[1:] != ends[:-1]).any()):
        fault("does not list the records one after the other")
    for name, vocabulary in manifest.vocabularies.items():
        codes = index.categories.get(name, np.zeros(0, np.int32))
        good = codes[(codes >= 0) & (codes < len(vocabulary))]
        if len(good) != len(index):
            fault(f"has {name} ids that are not in the manifest's vocabulary")
        check.category_counts[name] = np.bincount(good, minlength=len(vocabulary))
    check.id_hashes = [
        int.from_bytes(hashlib.blake2b(each.encode(), digest_size=8).digest(), "little")
        for each in index.ids()
    ]
    return index


def _check_records(
    path: str, data: bytes, index: RecordIndex, manifest: Manifest, check: _ShardCheck
) -> None:
    end = 0
    for number, (start, length) in enumerate(
        zip(index.offset.tolist(), index.length.tolist(), strict=True)
    ):
        end = start + length
        try:
            if end > len(data):
                raise ValueError("file ends inside a record")
            values = decode_example(manifest.features, unframe(data[start:end], start))
            problem = _contradiction(values, index, number, manifest)
        except ValueError as error:
            problem = str(error)
        if problem:
            message = f"{problem} (id {index.id(number)!r})"
            check.faults.append(Fault(file=path, record=number, offset=start, message=message))
    if end < len(data):
        message = f"holds {len(data) - end} bytes after the last record of its index"
        check.faults.append(Fault(file=path, message=message))


def _contradiction(
    values: dict[str, Any], index: RecordIndex, number: int, manifest: Manifest
) -> str:
    """How a record contradicts its index or itself; "" if it does not."""
    if values["image/source_id"] != index.id(number):
        return f"the record's id is {values['image/source_id']!r}, not the index's"
    for name in ("height", "width", "channels"):
        if values[f"image/{name}"] != getattr(index, name)[number]:
            return f"the record's {name} is {values[f'image/{name}']}, not the index's"
    for name, vocabulary in manifest.vocabularies.items():
        code = values[id_feature(name)]
        if code != index.categories[name][number]:
            return f"the record's {name} id is {code}, not the index's"
        if vocabulary[code] != values[f"receipt/{name}"]:
            return f"the record's {name} is {values[f'receipt/{name}']!r}, its id's another"
    if hashlib.sha256(values["image/encoded"]).hexdigest() != values["image/key/sha256"]:
        return "the image's bytes do not match image/key/sha256"
    return ""


def _check_whole(
    directory: str, manifest: Manifest, checks: dict[str, list[_ShardCheck]]
) -> Iterator[Fault]:
    path = files.join(directory, MANIFEST)
    for name, split in manifest.splits.items():
        shards = [check.category_counts for check in checks[name]]
        if not all(LAYOUT in counts for counts in shards):
            continue  # an index can't be read: said already
        for category, expected in split.category_counts.items():
            found = sum((counts[category] for counts in shards), np.zeros(len(expected), np.int64))
            if tuple(found.tolist()) != expected:
                yield Fault(file=path, message=f"{category} counts of {name} are not the records'")
        dealt = dealt_histogram(split.category_counts[LAYOUT], len(split.shards))
        for shard, counts, expected_row in zip(split.shards, shards, dealt, strict=True):
            for layout in np.flatnonzero(counts[LAYOUT] != expected_row)[:1].tolist():
                yield Fault(
                    file=files.join(directory, shard.name),
                    message=f"holds {counts[LAYOUT][layout]} records of layout "
                    f"{manifest.vocabularies[LAYOUT][layout]!r}, its fair share is "
                    f"{expected_row[layout]}",
                )
    hashes = np.array(
        [each for part in checks.values() for c in part for each in c.id_hashes], np.uint64
    )
    if (repeated := len(hashes) - len(np.unique(hashes))) > 0:
        yield Fault(file=path, message=f"{repeated} ids stand in the dataset more than once")


if __name__ == "__main__":
    sys.exit(main())
