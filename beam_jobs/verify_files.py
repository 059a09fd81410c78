"""What lies beside the shards of a dataset directory, checked."""

import io
from collections.abc import Iterator

from google.protobuf import text_format
from google.protobuf.message import DecodeError
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from beam_jobs import files
from beam_jobs.verify_shard import Fault
from schemas.example import decode_example
from schemas.manifest import (
    COMPLETED,
    EXCLUDED,
    MANIFEST,
    SCHEMA,
    STATISTICS,
    Manifest,
    is_dataset_file,
)
from schemas.quarantine import DUPLICATES, QUARANTINE, REJECTED_FEATURES
from schemas.tfrecord import CorruptRecordError, read_records


def check_names(directory: str, manifest: Manifest) -> Iterator[Fault]:
    """Files of a dataset that this one does not have."""
    expected = {MANIFEST, SCHEMA, STATISTICS, COMPLETED, EXCLUDED}
    for split in manifest.splits.values():
        expected.update(name for each in split.shards for name in (each.name, each.index_name))
    root = directory.rstrip("/") + "/"
    for path in files.list_below(directory):
        name = path.removeprefix(root)
        listed = name in expected or name.startswith((QUARANTINE + "/", DUPLICATES + "/"))
        if is_dataset_file(name) and not listed:
            yield Fault(file=path, message="is not in the manifest")


def check_descriptions(directory: str) -> Iterator[Fault]:
    """schema.pbtxt and statistics.pb: whether they can be read."""

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


def check_listings(directory: str, manifest: Manifest) -> Iterator[Fault]:
    """Quarantine and duplicates: whether they hold what the manifest counts."""
    found = {"rejected.tfrecord": 0, "rejected.jsonl": 0, "duplicates.jsonl": 0}
    for folder in (QUARANTINE, DUPLICATES):
        for path in files.list_below(files.join(directory, folder)):
            kind = path.rpartition("/")[2].rpartition("-of-")[0].rpartition("-")[0]
            try:
                data = files.read(path)
            except OSError as error:
                yield Fault(file=path, message=f"can't be read: {error}")
                continue
            if kind == "rejected.tfrecord":
                try:
                    for place in read_records(io.BytesIO(data)):
                        found[kind] += 1
                        decode_example(REJECTED_FEATURES, place[1])
                except CorruptRecordError as error:
                    yield Fault(
                        file=path,
                        record=found[kind],
                        offset=error.offset,
                        message=str(error),
                    )
                except ValueError as error:
                    yield Fault(
                        file=path,
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
