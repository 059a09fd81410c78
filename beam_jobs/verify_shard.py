"""One shard of a dataset directory, checked: its bytes, its index and every record."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from beam_jobs import files
from schemas.example import decode_example
from schemas.excluded import ExcludedRecord
from schemas.index import RecordIndex
from schemas.manifest import EXCLUDED, Manifest, Shard
from schemas.receipt import id_feature
from schemas.tfrecord import unframe


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is wrong, and where.

    Attributes:
      file: the file's path.
      message: what is wrong with it.
      record: if it is one record's, the record's position in the file.
      offset: byte at which that record starts.
      id: the receipt's id, where its index tells it.
      excludable: whether leaving this one record out makes up for it.
    """

    file: str
    message: str
    record: int | None = None
    offset: int | None = None
    id: str | None = None
    excludable: bool = False

    def __str__(self) -> str:
        place = "" if self.record is None else f", record {self.record} at byte {self.offset}"
        receipt = "" if self.id is None else f" (id {self.id!r})"
        return f"{self.file}{place}: {self.message}{receipt}"


@dataclass(kw_only=True)
class ShardCheck:
    """Faults of one shard, and its counts for the checks of the whole.

    Attributes:
      faults: what is wrong with it.
      category_counts: category name to int64 [values], records of each value.
      id_hashes: uint64 [records], 64 bits of each id, to find ids that stand in several shards.
    """

    faults: list[Fault] = field(default_factory=list)
    category_counts: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    id_hashes: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))


def check_shard(
    directory: str,
    manifest: Manifest,
    split: str,
    number: int,
    excluded: Sequence[ExcludedRecord],
    *,
    exclude: bool,
) -> ShardCheck:
    """Checks shard `number` of a split.

    The index tells where records lie, so a record can be left out only where the index is the one
    that the build wrote. Its frames then cover the whole shard: once a damaged record is left out,
    each other record's own checks make up for the size and the checksum of the file.

    Args:
      directory: the dataset directory.
      manifest: its manifest.
      split: the shard's split.
      number: the shard's position in it.
      excluded: records of the shard that are left out: no faults.
      exclude: whether the caller is about to leave out every excludable fault's record too.
    """
    shard = manifest.splits[split].shards[number]
    check = ShardCheck()
    index = _check_index(directory, manifest, shard, number, check)
    index_is_sound = not check.faults
    path = files.join(directory, shard.name)
    try:
        data = files.read(path)
    except OSError as error:
        check.faults.append(Fault(file=path, message=f"can't be read: {error}"))
        return check
    if index is None:
        check.faults += _check_file(path, data, shard)
        return check
    if index_is_sound:
        check.faults += _check_excluded(directory, shard, index, excluded)
    damaged = _check_records(path, data, index, manifest)
    known = {each.position for each in excluded}
    nothing_is_sound = len(damaged) == len(index) > 1
    excludable = index_is_sound and not nothing_is_sound
    if not any(each.record in known or (exclude and excludable) for each in damaged):
        check.faults += _check_file(path, data, shard)
    check.faults += [
        replace(each, excludable=excludable) for each in damaged if each.record not in known
    ]
    if nothing_is_sound:
        check.faults.append(
            Fault(
                file=path,
                message="holds no sound record: restore it from a copy, or build the dataset again",
            )
        )
    end = int(index.offset[-1] + index.length[-1]) if len(index) else 0
    if end < len(data):
        message = f"holds {len(data) - end} bytes after the last record of its index"
        check.faults.append(Fault(file=path, message=message))
    return check


def _check_file(path: str, data: bytes, shard: Shard) -> Iterator[Fault]:
    if len(data) != shard.size_bytes:
        message = f"has {len(data)} bytes, the manifest says {shard.size_bytes}"
        yield Fault(file=path, message=message)
    if google_crc32c.value(data) != shard.crc32c:
        yield Fault(file=path, message="has another checksum than in the manifest")


def _check_excluded(
    directory: str, shard: Shard, index: RecordIndex, excluded: Sequence[ExcludedRecord]
) -> Iterator[Fault]:
    for each in excluded:
        id_, offset = index.id(each.position), int(index.offset[each.position])
        if (each.id, each.offset) != (id_, offset):
            yield Fault(
                file=files.join(directory, EXCLUDED),
                message=f"leaves out record {each.position} of {shard.name} as id {each.id!r} at "
                f"byte {each.offset}, the index has id {id_!r} at byte {offset} there",
            )


def _check_index(
    directory: str, manifest: Manifest, shard: Shard, number: int, check: ShardCheck
) -> RecordIndex | None:
    path = files.join(directory, shard.index_name)

    def fault(message: str) -> None:
        check.faults.append(Fault(file=path, message=message))

    try:
        data = files.read(path)
        index = RecordIndex.from_bytes(data)
    except (OSError, ValueError) as error:
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
    digests = [hashlib.blake2b(each.encode(), digest_size=8).digest() for each in index.ids()]
    check.id_hashes = np.frombuffer(b"".join(digests), np.uint64)
    return index


def _check_records(path: str, data: bytes, index: RecordIndex, manifest: Manifest) -> list[Fault]:
    """One fault a damaged record; each is found by its offset, whatever lies before it."""
    damaged = []
    for number, (start, length) in enumerate(
        zip(index.offset.tolist(), index.length.tolist(), strict=True)
    ):
        try:
            if start + length > len(data):
                raise ValueError("file ends inside a record")
            values = decode_example(manifest.features, unframe(data[start : start + length], start))
            problem = _contradiction(values, index, number, manifest)
        except ValueError as error:
            problem = str(error)
        if problem:
            damaged.append(
                Fault(file=path, record=number, offset=start, id=index.id(number), message=problem)
            )
    return damaged


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
        if name not in index.categories or code != index.categories[name][number]:
            return f"the record's {name} id is {code}, not the index's"
        if not 0 <= code < len(vocabulary):
            return f"the record's {name} id is {code}, the manifest knows {len(vocabulary)} values"
        if vocabulary[code] != values[f"receipt/{name}"]:
            return f"the record's {name} is {values[f'receipt/{name}']!r}, its id's another"
    if hashlib.sha256(values["image/encoded"]).hexdigest() != values["image/key/sha256"]:
        return "the image's bytes do not match image/key/sha256"
    return ""
