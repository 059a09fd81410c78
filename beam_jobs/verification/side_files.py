"""Checks of the files beside the shards of a dataset directory against the manifest."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from beam_jobs.shown import shown
from beam_jobs.storage import files
from beam_jobs.storage.checksums import ChecksumReader, checksum
from beam_jobs.verification.shard import Fault, checksum_faults, hash_ids
from schemas.example import decode_example
from schemas.file_names import (
    COMPLETED,
    TFDS_FEATURES,
    TFDS_INFO,
    is_dataset_file,
    least_certain_name,
    manifest_name,
)
from schemas.least_certain import LeastCertain
from schemas.manifest import FileChecksum, Manifest
from schemas.quarantine import REJECTED_FEATURES
from schemas.receipt import LAYOUT
from schemas.tfds import tfds_files
from schemas.tfrecord import CorruptRecordError, read_records


def check_names(directory: str, manifests: Sequence[Manifest]) -> Iterator[Fault]:
    """Yields the files of a dataset directory that the manifests of its versions don't name."""
    expected = {COMPLETED, TFDS_FEATURES, TFDS_INFO}
    for manifest in manifests:
        expected |= manifest.file_names
    root = directory.rstrip("/") + "/"
    for path in files.list_below(directory):
        name = path.removeprefix(root)
        if is_dataset_file(name) and name not in expected:
            yield Fault(file=path, message="is not in any manifest")


def check_tfds_files(directory: str, manifest: Manifest) -> Iterator[Fault]:
    """Yields the files for TensorFlow Datasets that are not those of the newest version."""
    try:
        made = tfds_files(manifest)
    except (KeyError, TypeError):
        path = files.join(directory, manifest_name(manifest.version))
        yield Fault(file=path, message="has build options that don't tell how images are stored")
        return
    for name, expected in made.items():
        path = files.join(directory, name)
        try:
            if files.read(path) != expected:
                message = f"is not that of version {manifest.version}"
                yield Fault(file=path, message=message)
        except OSError as error:
            yield Fault(file=path, message=f"can't be read: {error}")


def check_files(directory: str, manifest: Manifest) -> Iterator[Fault]:
    """Checks the listings, the schema and the statistics of a version.

    Yields a fault for each file that is not as the build wrote it. If all are, yields a fault for
    each kind of listing that does not hold as many entries as the manifest counts.
    """
    entries: Counter[str] = Counter()
    damaged = False
    for name, expected in sorted(manifest.checksums.items()):
        kind = name.rpartition("/")[2].partition("-")[0]  # rejected.jsonl of rejected.jsonl-00000-…
        count, faults = _check_file(files.join(directory, name), kind, expected)
        yield from faults
        entries[kind] += count
        damaged = damaged or bool(faults)
    if not damaged:  # the entries of a damaged file can't be counted
        yield from _check_counts(
            files.join(directory, manifest_name(manifest.version)), manifest, entries
        )


def check_least_certain(
    directory: str, manifest: Manifest, id_hashes: npt.NDArray[np.uint64]
) -> Iterator[Fault]:
    """Checks that the least certain receipts that are listed are receipts of the version.

    Args:
      directory: the dataset directory.
      manifest: the manifest of the version.
      id_hashes: `hash_ids` of all its records, ascending.
    """
    name = least_certain_name(manifest.version)
    if name not in manifest.files:
        return
    path = files.join(directory, name)
    try:
        data = files.read(path)
        if checksum(data) != manifest.files[name]:
            return  # `check_files` names it
        listed = LeastCertain.from_json(data).receipts
    except OSError:
        return  # `check_files` names it
    except ValueError as error:
        yield Fault(file=path, message=str(error))
        return
    asked = hash_ids(one.id for one in listed)
    first, end = (np.searchsorted(id_hashes, asked, side) for side in ("left", "right"))
    for receipt, is_known in zip(listed, (first < end).tolist(), strict=True):
        if not is_known:
            message = "lists a receipt that this version does not have"
            yield Fault(file=path, id=receipt.id, message=message)
        elif (
            receipt.split not in manifest.splits
            or receipt.layout not in manifest.vocabularies[LAYOUT]
        ):
            split, layout = shown(receipt.split), shown(receipt.layout)
            message = f"names split {split} and layout {layout}: one is unknown"
            yield Fault(file=path, id=receipt.id, message=message)


def _check_file(path: str, kind: str, expected: FileChecksum) -> tuple[int, list[Fault]]:
    """Checks one file; returns its number of entries, 0 if it is not a listing, and its faults."""
    faults: list[Fault] = []
    reader = ChecksumReader(path)
    entries = 0
    try:
        if kind in _COUNTERS:
            entries = _COUNTERS[kind](path, reader, faults)
        faults += checksum_faults(path, reader.finish(), expected)
    except OSError as error:
        faults.append(Fault(file=path, message=f"can't be read: {error}"))
    return entries, faults


def _check_counts(path: str, manifest: Manifest, entries: Counter[str]) -> Iterator[Fault]:
    rejected = sum(manifest.counts.quarantined.values())
    counted = {
        "rejected.tfrecord": rejected,
        "rejected.jsonl": rejected,
        "duplicates.jsonl": manifest.counts.duplicates,
        "near_duplicates.jsonl": manifest.counts.near_duplicates,
    }
    for kind, count in counted.items():
        missing = count - entries[kind]
        if missing:
            yield Fault(
                file=path,
                message=f"counts {abs(missing)} {'entries' if abs(missing) > 1 else 'entry'} "
                f"{'more' if missing > 0 else 'fewer'} than the {kind} files hold",
            )


def _count_records(path: str, reader: ChecksumReader, faults: list[Fault]) -> int:
    """Counts the records of the quarantine up to the first damaged one, which is a fault."""
    count = 0
    try:
        for offset, payload in read_records(reader):
            try:
                decode_example(REJECTED_FEATURES, payload)
            except ValueError as error:
                raise CorruptRecordError(offset, str(error)) from error
            count += 1
    except CorruptRecordError as error:
        faults.append(Fault(file=path, record=count, offset=error.offset, message=str(error)))
    return count


def _count_lines(path: str, reader: ChecksumReader, faults: list[Fault]) -> int:
    """Counts the lines of a listing; the checksum tells whether they are those written."""
    return sum(piece.count(b"\n") for piece in reader.pieces())


_COUNTERS: dict[str, Callable[[str, ChecksumReader, list[Fault]], int]] = {
    "rejected.tfrecord": _count_records,
    "rejected.jsonl": _count_lines,
    "duplicates.jsonl": _count_lines,
    "near_duplicates.jsonl": _count_lines,
}
