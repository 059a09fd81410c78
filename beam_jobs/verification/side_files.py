"""The files beside the shards of a dataset directory, checked against the manifest."""

from collections.abc import Iterator

from beam_jobs.storage import files
from beam_jobs.storage.checksums import ChecksumReader
from beam_jobs.verification.shard import Fault, checksum_faults
from schemas.example import decode_example
from schemas.manifest import COMPLETED, EXCLUDED, MANIFEST, Manifest, is_dataset_file
from schemas.quarantine import REJECTED_FEATURES
from schemas.tfrecord import CorruptRecordError, read_records


def check_names(directory: str, manifest: Manifest) -> Iterator[Fault]:
    """Yields the files of a dataset that the manifest does not name."""
    expected = {MANIFEST, COMPLETED, EXCLUDED, *manifest.files}
    for split in manifest.splits.values():
        expected.update(name for each in split.shards for name in (each.name, each.index_name))
    root = directory.rstrip("/") + "/"
    for path in files.list_below(directory):
        name = path.removeprefix(root)
        if is_dataset_file(name) and name not in expected:
            yield Fault(file=path, message="is not in the manifest")


def check_files(directory: str, manifest: Manifest) -> Iterator[Fault]:
    """Checks every file but shards, indexes, the manifest, COMPLETED and excluded.json.

    Yields a fault for each that is not as the build wrote it, and one if those that list inputs
    don't list as many as the manifest counts.
    """
    rejected = sum(manifest.counts.quarantined.values())
    unlisted = {
        "rejected.tfrecord": rejected,
        "rejected.jsonl": rejected,
        "duplicates.jsonl": manifest.counts.duplicates,
    }
    damaged = False
    for name, expected in sorted(manifest.files.items()):
        path = files.join(directory, name)
        kind = name.rpartition("/")[2].partition("-")[0]
        faults: list[Fault] = []
        reader = ChecksumReader(path)
        try:
            if kind == "rejected.tfrecord":
                unlisted[kind] -= _count_records(path, reader, faults)
            elif kind in unlisted:
                unlisted[kind] -= sum(piece.count(b"\n") for piece in reader.pieces())
            faults += checksum_faults(path, reader.finish(), expected)
        except OSError as error:
            faults.append(Fault(file=path, message=f"can't be read: {error}"))
        yield from faults
        damaged = damaged or bool(faults)
    if not damaged:  # else their entries can't be counted
        for kind, missing in unlisted.items():
            if missing:
                yield Fault(
                    file=files.join(directory, MANIFEST),
                    message=f"counts {abs(missing)} entries {'more' if missing > 0 else 'fewer'} "
                    f"than the {kind} files hold",
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
