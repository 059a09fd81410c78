"""Files of a built dataset, read, changed and damaged."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.example import decode_example
from schemas.excluded import ExcludedRecord
from schemas.file_names import (
    COMPLETED,
    excluded_name,
    index_name,
    manifest_name,
    shard_name,
    statistics_name,
)
from schemas.index import RecordIndex
from schemas.manifest import Manifest
from schemas.tfrecord import frame, unframe
from schemas.versions import FIRST_VERSION, Versions

# The shard of the fixture `dataset` that tests read and damage.
SHARD = shard_name("train", 2)
INDEX = index_name(SHARD)
# What `damaged` can do to one record, beside a "missing file".
FAULTS = ("payload", "checksum", "length", "checksum of length", "cut off", "ends before")
# Of version 1.
MANIFEST = manifest_name(FIRST_VERSION)
STATISTICS = statistics_name(FIRST_VERSION)
EXCLUDED = excluded_name(FIRST_VERSION)


def manifest_of(directory: Path) -> Manifest:
    """Returns the manifest of the newest version of a dataset, which must be finished."""
    newest = Versions.from_bytes((directory / COMPLETED).read_bytes()).newest
    data = (directory / manifest_name(newest.number)).read_bytes()
    newest.check(data)
    return Manifest.from_json(data)


def records_of(directory: Path, split: str) -> list[list[dict]]:
    """Returns the decoded records of each shard, found through its index."""
    manifest = manifest_of(directory)
    shards = []
    for shard in manifest.splits[split].shards:
        data = (directory / shard.name).read_bytes()
        index = RecordIndex.from_bytes((directory / shard.index_name).read_bytes())
        shards.append(
            [
                decode_example(manifest.features, unframe(data[start : start + length], start))
                for start, length in zip(index.offset.tolist(), index.length.tolist(), strict=True)
            ]
        )
    return shards


def index_of(directory: Path) -> RecordIndex:
    """Returns the index of the shard."""
    return RecordIndex.from_bytes((directory / INDEX).read_bytes())


def offset_of(directory: Path, record: int) -> int:
    """Returns where a record of the shard begins."""
    return int(index_of(directory).offset[record])


def payload_of(directory: Path, record: int) -> bytes:
    """Returns a record of the shard without its frame."""
    index = index_of(directory)
    start = int(index.offset[record])
    data = (directory / SHARD).read_bytes()
    return unframe(data[start : start + int(index.length[record])], start)


def replace_payload(directory: Path, record: int, payload: bytes) -> None:
    """Changes a record of the shard to one of the same length, in a frame that is whole."""
    index = index_of(directory)
    start = int(index.offset[record])
    framed = frame(payload)
    assert len(framed) == index.length[record]
    data = (directory / SHARD).read_bytes()
    (directory / SHARD).write_bytes(data[:start] + framed + data[start + len(framed) :])


def entry(directory: Path, position: int, fault: str = "by hand") -> ExcludedRecord:
    """Returns the entry of excluded.json that leaves out this record of the shard."""
    index = index_of(directory)
    return ExcludedRecord(
        position=position, id=index.id(position), offset=int(index.offset[position]), fault=fault
    )


def flip(path: Path, position: int) -> None:
    """Changes one bit of the byte at this position."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def next_tick() -> None:
    """Waits until the file system's clock moves on, which some kernels count in 10 ms."""
    time.sleep(0.02)


def exchange(path: Path, index: RecordIndex, first: int, second: int) -> None:
    """Exchanges two records of a shard, in whole frames of equal length, and hides it.

    The time of change is set to what it was, as by `cp -p` or `rsync --times`.
    """
    status = path.stat()
    data = bytearray(path.read_bytes())
    assert index.length[first] == index.length[second]
    one, other = (
        slice(int(index.offset[row]), int(index.offset[row] + index.length[row]))
        for row in (first, second)
    )
    data[one], data[other] = data[other], data[one]
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@contextmanager
def damaged(path: Path, fault: str, offset: int, length: int) -> Iterator[None]:
    """A shard with something wrong with one record."""
    whole = path.read_bytes()
    flip = {"length": 0, "checksum of length": 9, "payload": 60, "checksum": length - 1}
    if fault == "missing file":
        path.unlink()
    elif fault == "cut off":
        path.write_bytes(whole[: offset + length // 2])
    elif fault == "ends before":
        path.write_bytes(whole[:offset])
    else:
        at = offset + flip[fault]
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
    try:
        yield
    finally:
        path.write_bytes(whole)


def change_manifest(directory: Path, change: Callable[[dict], None]) -> None:
    """Changes the manifest of version 1 as if the build had written it so."""
    values = json.loads((directory / MANIFEST).read_text())
    change(values)
    write_manifest(directory, json.dumps(values))


def change_shard(directory: Path, **values: object) -> None:
    """Changes what the manifest says of the shard."""

    def change(manifest: dict) -> None:
        manifest["generations"][0]["splits"]["train"]["shards"][2].update(values)

    change_manifest(directory, change)


def write_manifest(directory: Path, text: str) -> None:
    """Writes the manifest of version 1 and the COMPLETED that belongs to it."""
    (directory / MANIFEST).write_text(text)
    (directory / COMPLETED).write_bytes(Versions.first(text.encode()).to_bytes())


def split_of(directory: Path) -> dict[str, str]:
    """Split of each receipt, by id."""
    return {
        record["image/source_id"]: split
        for split in manifest_of(directory).splits
        for shard in records_of(directory, split)
        for record in shard
    }
