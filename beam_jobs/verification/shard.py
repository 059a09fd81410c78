"""Checks of one shard of a dataset directory: its bytes, its index and every record."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from beam_jobs.shown import shown
from beam_jobs.storage import files
from beam_jobs.storage.checksums import ChecksumReader
from schemas.example import decode_example
from schemas.excluded import ExcludedRecord
from schemas.file_names import excluded_name, manifest_name
from schemas.index import RecordIndex, dali_index
from schemas.jpeg import check_jpeg
from schemas.lookup import RecordLookup
from schemas.manifest import FileChecksum, Manifest, Shard, Split, dealt_histogram
from schemas.raw_pixels import are_aligned, check_pixels_start
from schemas.receipt import LAYOUT, id_feature
from schemas.restart_rows import all_restart_rows, check_row_table
from schemas.tfrecord import unframe

_SHAPE = ("height", "width", "channels")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault of a dataset directory: its place and a sentence.

    Attributes:
      file: the file's path.
      message: the fault.
      record: position of the record in the file, None if the fault is not that of one record.
      offset: byte at which that record starts.
      id: the receipt's id, if its index is readable.
      excludable: True if the dataset is valid without this one record.
    """

    file: str
    message: str
    record: int | None = None
    offset: int | None = None
    id: str | None = None
    excludable: bool = False

    def __str__(self) -> str:
        place = "" if self.record is None else f", record {self.record} at byte {self.offset}"
        receipt = "" if self.id is None else f" (id {shown(self.id)})"
        return f"{self.file}{place}: {self.message}{receipt}"


@dataclass(kw_only=True)
class ShardCheck:
    """Faults of one shard, and what the checks of the whole dataset need from it.

    Attributes:
      faults: the faults found.
      codes: category name to int32 [records], positions of the records' values in the manifest's
        vocabulary; of a readable index only.
      id_hashes: uint64 [records], 64 bits of each id, to find ids that occur in several shards.
    """

    faults: list[Fault] = field(default_factory=list)
    codes: dict[str, npt.NDArray[np.int32]] = field(default_factory=dict)
    id_hashes: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))


def check_shard(
    directory: str,
    manifest: Manifest,
    shard: Shard,
    excluded: Sequence[ExcludedRecord],
    *,
    exclude: bool,
) -> ShardCheck:
    """Checks a shard, record by record.

    The index tells where records lie, so records are looked at only where the index is the one that
    the build wrote. Its frames then cover the whole shard: once a damaged record is left out, each
    other record's own checks make up for the size and the checksum of the file.

    A record is damaged if its own bytes are. One that contradicts its index row or the manifest is
    damaged only if the shard's checksum is wrong too: if not, the shard is as the build wrote it,
    and the index or the manifest is at fault.

    Args:
      directory: the dataset directory.
      manifest: its manifest.
      shard: the shard.
      excluded: records of the shard that are left out: no faults.
      exclude: whether the caller is about to leave out every excludable fault's record too.
    """
    check = ShardCheck()
    index = _check_index(directory, manifest, shard, check)
    index_is_whole = index is not None and not check.faults
    check.faults += _dali_index_faults(directory, shard, index)
    check.faults += _lookup_faults(directory, shard)
    check.faults += _summary_faults(directory, shard)
    path = files.join(directory, shard.name)
    reader = ChecksumReader(path)
    expected = FileChecksum(size_bytes=shard.size_bytes, crc32c=shard.crc32c)
    try:
        # Positions of an index with faults would find faults in every record: the file is looked at
        # as a whole.
        if index is None or not index_is_whole:
            check.faults += checksum_faults(path, reader.finish(), expected)
            return check
        records = list(_check_records(path, reader, index, manifest, shard))
        # The reader has seen every byte by now, so the checksum of the file costs no second
        # reading.
        actual = reader.finish()
    except OSError as error:
        check.faults.append(Fault(file=path, message=f"can't be read: {error}"))
        return check
    check.faults += _check_excluded(directory, manifest, shard, index, excluded)
    intact = actual.crc32c == shard.crc32c
    damaged = [fault for name, fault in records if name == shard.name or not intact]
    if intact:
        check.faults += _contradicted_files(directory, manifest, shard, records)
    # A file that was lost or replaced is no case for leaving out records one by one: training would
    # go on without a whole shard. A shard of a single record may lose it.
    none_is_valid = len(damaged) == len(index) > 1 and not intact
    already_excluded = {record.position for record in excluded}
    excludes_some = any(
        fault.record in already_excluded or (exclude and not none_is_valid) for fault in damaged
    )
    # A record that is left out stays in the file, whose checksum is then wrong for good.
    if not excludes_some:
        check.faults += checksum_faults(path, actual, expected)
    check.faults += [
        replace(fault, excludable=not none_is_valid)
        for fault in damaged
        if fault.record not in already_excluded
    ]
    if none_is_valid:
        message = "holds no valid record: restore it from a copy, or build the dataset again"
        check.faults.append(Fault(file=path, message=message))
    end = int(index.offset[-1] + index.length[-1]) if len(index) else 0
    if end < actual.size_bytes:
        message = f"holds {actual.size_bytes - end} bytes after the last record of its index"
        check.faults.append(Fault(file=path, message=message))
    return check


def share_faults(
    directory: str, manifest: Manifest, part: Split, number: int, check: ShardCheck
) -> Iterator[Fault]:
    """Yields a fault if a shard that was checked does not hold its fair share of a layout.

    Args:
      directory: the dataset directory.
      manifest: its manifest.
      part: the part of a split that was dealt together, in one generation.
      number: the shard's position in it.
      check: the check of the shard.
    """
    if LAYOUT not in check.codes:
        return  # its index can't be read, which is a fault already
    expected = dealt_histogram(part.dealt_layout_counts, shards=len(part.shards), shard=number)
    forgotten = np.array(part.shards[number].forgotten, np.int64)
    expected -= np.bincount(forgotten, minlength=len(expected))
    # An older generation has no record of the layouts that came later.
    expected = np.pad(expected, (0, len(manifest.vocabularies[LAYOUT]) - len(expected)))
    actual = np.bincount(check.codes[LAYOUT], minlength=len(expected))
    for layout in np.flatnonzero(actual != expected)[:1].tolist():
        yield Fault(
            file=files.join(directory, part.shards[number].name),
            message=f"holds {actual[layout]} records of layout "
            f"{shown(manifest.vocabularies[LAYOUT][layout])}, its fair share is {expected[layout]}",
        )


def checksum_faults(path: str, actual: FileChecksum, expected: FileChecksum) -> Iterator[Fault]:
    """Yields a fault if a file's size differs from the manifest's, and one if its checksum does."""
    if actual.size_bytes != expected.size_bytes:
        message = f"has {actual.size_bytes} bytes, the manifest says {expected.size_bytes}"
        yield Fault(file=path, message=message)
    if actual.crc32c != expected.crc32c:
        yield Fault(file=path, message="has another checksum than in the manifest")


def _contradicted_files(
    directory: str, manifest: Manifest, shard: Shard, records: Sequence[tuple[str, Fault]]
) -> Iterator[Fault]:
    """Yields one fault for each file that records of an undamaged shard contradict."""
    for name in (shard.index_name, manifest_name(manifest.version)):
        faults = [fault for at_fault, fault in records if at_fault == name]
        if faults:
            more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            yield Fault(
                file=files.join(directory, name),
                message=f"contradicts the undamaged shard {shard.name}: record {faults[0].record} "
                f"{faults[0].message}{more}",
            )


def _check_excluded(
    directory: str,
    manifest: Manifest,
    shard: Shard,
    index: RecordIndex,
    excluded: Sequence[ExcludedRecord],
) -> Iterator[Fault]:
    for record in excluded:
        id_, offset = index.id(record.position), int(index.offset[record.position])
        if (record.id, record.offset) != (id_, offset):
            yield Fault(
                file=files.join(directory, excluded_name(manifest.version)),
                message=f"leaves out record {record.position} of {shard.name} as id "
                f"{shown(record.id)} at byte {record.offset}, the index has id {shown(id_)} at "
                f"byte {offset} there",
            )


def _check_index(
    directory: str, manifest: Manifest, shard: Shard, check: ShardCheck
) -> RecordIndex | None:
    """Checks the indexes of a shard, and adds its faults, codes and hashes of ids to `check`.

    Returns:
      The index, None if it can't be used.
    """
    path = files.join(directory, shard.index_name)

    def fault(message: str) -> None:
        check.faults.append(Fault(file=path, message=message))

    try:
        data = files.read(path)
        if google_crc32c.value(data) != shard.index_crc32c:
            raise ValueError("has another checksum than in the manifest")
        index = RecordIndex.from_bytes(data)
    except ValueError as error:
        fault(str(error))
        return None
    except OSError as error:
        fault(f"can't be read: {error}")
        return None
    if index.categories.keys() != manifest.vocabularies.keys():
        fault(f"lists the categories {sorted(index.categories)}, not those of the manifest")
        return None
    for message in _row_faults(index, shard):
        fault(message)
    for name, vocabulary in manifest.vocabularies.items():
        codes = index.categories[name]
        # Codes beyond the vocabulary are a fault by themselves, and would break the counts of the
        # dataset.
        check.codes[name] = codes[(codes >= 0) & (codes < len(vocabulary))]
        if len(check.codes[name]) != len(index):
            check.faults.append(
                Fault(
                    file=files.join(directory, manifest_name(manifest.version)),
                    message=f"has {len(vocabulary)} values of {name}, {shard.index_name} has "
                    "positions beyond them",
                )
            )
    # 64 bits per id, as the ids of a whole dataset are compared in memory. Among 100 million ids
    # two share their hash by chance once in some 4,000 datasets.
    check.id_hashes = hash_ids(index.ids())
    return index


def hash_ids(ids: Iterable[str]) -> npt.NDArray[np.uint64]:
    """Hashes ids as in `ShardCheck.id_hashes`."""
    digests = [hashlib.blake2b(id_.encode(), digest_size=8).digest() for id_ in ids]
    return np.frombuffer(b"".join(digests), np.uint64)


def _dali_index_faults(directory: str, shard: Shard, index: RecordIndex | None) -> Iterator[Fault]:
    """Yields a fault if the index that DALI reads is not as written, or not that of `index`."""
    path = files.join(directory, shard.dali_index_name)
    try:
        data = files.read(path)
    except OSError as error:
        yield Fault(file=path, message=f"can't be read: {error}")
        return
    if google_crc32c.value(data) != shard.dali_index_crc32c:
        yield Fault(file=path, message="has another checksum than in the manifest")
    elif index is not None and data != dali_index(index):
        yield Fault(file=path, message=f"contradicts {shard.index_name}")


def _lookup_faults(directory: str, shard: Shard) -> Iterator[Fault]:
    path = files.join(directory, shard.lookup_name)
    try:
        data = files.read(path)
        if google_crc32c.value(data) != shard.lookup_crc32c:
            raise ValueError("has another checksum than in the manifest")
        if len(lookup := RecordLookup.from_bytes(data)) != shard.records:
            raise ValueError(f"lists {len(lookup)} records, the manifest says {shard.records}")
    except OSError as error:
        yield Fault(file=path, message=f"can't be read: {error}")
    except ValueError as error:
        yield Fault(file=path, message=str(error))


def _summary_faults(directory: str, shard: Shard) -> Iterator[Fault]:
    path = files.join(directory, shard.summary_name)
    try:
        if google_crc32c.value(files.read(path)) != shard.summary_crc32c:
            yield Fault(file=path, message="has another checksum than in the manifest")
    except OSError as error:
        yield Fault(file=path, message=f"can't be read: {error}")


def _row_faults(index: RecordIndex, shard: Shard) -> Iterator[str]:
    """Yields the faults of the rows of an index: their number and their order."""
    if len(index) != shard.records:
        yield f"lists {len(index)} records, the manifest says {shard.records}"
    ends = index.offset + index.length
    if len(index) and (index.offset[0] != 0 or (index.offset[1:] != ends[:-1]).any()):
        yield "does not list the records one after the other"


def _check_records(
    path: str, reader: ChecksumReader, index: RecordIndex, manifest: Manifest, shard: Shard
) -> Iterator[tuple[str, Fault]]:
    """Yields (name of the file at fault, fault) of records.

    That is the shard if a record's own bytes are damaged, else the file that it contradicts.
    """
    is_mapped, has_rows = are_aligned(manifest), all_restart_rows(manifest)
    for number, (start, length) in enumerate(
        zip(index.offset.tolist(), index.length.tolist(), strict=True)
    ):
        at_fault, message = shard.name, ""
        framed = reader.read(length)
        try:
            if len(framed) < length:
                raise ValueError("file ends inside a record")
            payload = unframe(framed, start)
            values: Mapping[str, Any] = decode_example(manifest.features, payload)
            _check_image(values)
            if is_mapped:
                check_pixels_start(payload)
            if has_rows:
                check_row_table(values["image/encoded"])
        except ValueError as error:
            message = str(error)
        else:
            if message := _index_contradiction(values, index, number):
                at_fault = shard.index_name
            elif message := _vocabulary_contradiction(values, manifest):
                at_fault = manifest_name(manifest.version)
        if message:
            yield (
                at_fault,
                Fault(file=path, record=number, offset=start, id=index.id(number), message=message),
            )


def _check_image(values: Mapping[str, Any]) -> None:
    """Checks that a record's image is the one that was stored, and one that TensorFlow decodes.

    Raises:
      ValueError: it is not.
    """
    encoded = values["image/encoded"]
    if hashlib.sha256(encoded).hexdigest() != values["image/key/sha256"]:
        raise ValueError("the image's bytes do not match image/key/sha256")
    if values["image/format"] == "jpeg":
        check_jpeg(encoded)


def _index_contradiction(values: Mapping[str, Any], index: RecordIndex, number: int) -> str:
    """Describes how a record differs from its index row; "" if it does not."""
    pairs = [("image/source_id", index.id(number))]
    pairs += [(f"image/{name}", getattr(index, name)[number].item()) for name in _SHAPE]
    pairs += [(id_feature(name), codes[number].item()) for name, codes in index.categories.items()]
    for name, indexed in pairs:
        if values[name] != indexed:
            return f"has {name} {shown(values[name])}, its index row says {shown(indexed)}"
    return ""


def _vocabulary_contradiction(values: Mapping[str, Any], manifest: Manifest) -> str:
    """Describes how a record differs from the manifest's vocabularies; "" if it does not."""
    for name, vocabulary in manifest.vocabularies.items():
        value, code = values[f"receipt/{name}"], values[id_feature(name)]
        if not 0 <= code < len(vocabulary):
            return f"has {id_feature(name)} {code}, the manifest has {len(vocabulary)} values"
        if vocabulary[code] != value:
            meant = shown(vocabulary[code])
            return f"says {name} {shown(value)}, but {id_feature(name)} {code} is {meant}"
    return ""
