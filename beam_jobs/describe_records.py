"""Descriptors of the records of a dataset, by which their layouts are found without the inputs.

What is described is what the records hold: the image as it is stored, and the texts of the boxes.
A model may take long for it, so the descriptors of each shard go to a staging file of their own,
which the next launch of a job that was killed finds again.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
import PIL

from beam_jobs.errors import BuildError
from beam_jobs.find_layouts import KeyedDescriptors
from beam_jobs.images.image import StoredImage
from beam_jobs.layouts.descriptors import Describer, Method
from beam_jobs.models.model import tensorflow_version
from beam_jobs.prepare.chunks import buckets_of
from beam_jobs.prepare.known import OldShards
from beam_jobs.prepare.staging import Staging
from beam_jobs.sources.row import Box, Row
from beam_jobs.storage import files
from beam_jobs.storage.checksums import ChecksumReader
from beam_jobs.storage.files import ByteRange
from schemas import __version__
from schemas.example import decode_example
from schemas.file_names import shard_number
from schemas.lookup import RecordLookup
from schemas.manifest import Shard
from schemas.receipt import Feature
from schemas.tfrecord import CorruptRecordError, read_records

# Shards whose descriptors one worker holds, to write them bucket by bucket: some 25,000 records.
_SHARDS_AT_ONCE = 16

Described = tuple[tuple[int, int], str]  # split and piece of it, path of a shard's KeyedDescriptors


class DescribeRecords(beam.PTransform):
    """OldShards to (bucket, path of its KeyedDescriptors).

    Args:
      features: features of a record.
      method: the kind of the descriptors.
      records: number of records of the dataset.
      staging: where the descriptors go.
    """

    def __init__(
        self, features: tuple[Feature, ...], *, method: Method, records: int, staging: Staging
    ) -> None:
        super().__init__()
        self._features = features
        self._method = method
        self._records = records
        self._staging = staging

    def expand(self, old: beam.PCollection[OldShards]) -> beam.PCollection[tuple[int, str]]:
        return (
            old
            | "Each" >> beam.FlatMap(_each_shard)
            | "Spread" >> beam.Reshuffle()  # OldShards, one shard each
            | "Describe" >> beam.FlatMap(self._describe)  # Described
            | "ByPiece" >> beam.GroupByKey()
            | "IntoBuckets" >> beam.FlatMapTuple(self._into_buckets)  # (bucket, ByteRange)
            | "ByBucket" >> beam.GroupByKey()
            | "Join" >> beam.MapTuple(self._join)
        )

    def _describe(self, old: OldShards) -> Iterator[Described]:
        """Describes the records of a shard, unless a launch before has done it.

        Raises:
          BuildError: a record or a lookup is damaged, or the model can't describe an image.
        """
        for shard, lookup in old.lookups():
            path = self._staging.layouts(self._digest(shard))
            if not files.exists(path):
                described = self._descriptors(files.join(old.directory, shard.name), lookup)
                files.write(path, described.to_bytes())
            yield (old.split, shard_number(shard.name) // _SHARDS_AT_ONCE), path

    def _digest(self, shard: Shard) -> str:
        """Names what the descriptors of a shard follow from, hex SHA-256."""
        made_by = [__version__, PIL.__version__, self._method.layout_from, self._method.version]
        if self._method.model:
            made_by.append(tensorflow_version())
        described = [made_by, shard.name, shard.size_bytes, shard.crc32c]
        return hashlib.sha256(json.dumps(described).encode()).hexdigest()

    def _descriptors(self, path: str, lookup: RecordLookup) -> KeyedDescriptors:
        describer = Describer(self._method)
        count = 0
        try:
            for _, payload in read_records(ChecksumReader(path)):
                describer.add(*_receipt(decode_example(self._features, payload)))
                count += 1
        except CorruptRecordError as error:
            raise BuildError(
                f"{path}, byte {error.offset}: {error}; run python -m beam_jobs.verify"
            ) from error
        if count != len(lookup):
            raise BuildError(
                f"{path} holds {count:,} records, its lookup {len(lookup):,}; run python -m "
                "beam_jobs.verify"
            )
        return KeyedDescriptors(key=lookup.key, values=describer.descriptors())

    def _into_buckets(
        self, _: tuple[int, int], paths: Iterable[str]
    ) -> Iterator[tuple[int, ByteRange]]:
        """Yields where the descriptors of each bucket lie, in a staging file of some shards."""
        parts = [KeyedDescriptors.read(path) for path in sorted(paths)]
        described = KeyedDescriptors.concatenate(parts)
        buckets = buckets_of(described.key[:, 0], self._records)
        data = {
            bucket: described.take(np.flatnonzero(buckets == bucket)).to_bytes()
            for bucket in np.unique(buckets).tolist()
        }
        joined = b"".join(data.values())
        path = self._staging.layouts(hashlib.sha256(joined).hexdigest())
        files.write(path, joined)
        offset = 0
        for bucket, own in data.items():
            yield bucket, (path, offset, len(own))
            offset += len(own)

    def _join(self, bucket: int, ranges: Iterable[ByteRange]) -> tuple[int, str]:
        # In a fixed order, so that a worker that is tried again writes the same file.
        parts = [KeyedDescriptors.from_bytes(data) for data in files.read_ranges(sorted(ranges))]
        return bucket, KeyedDescriptors.concatenate(parts).staged(self._staging)


def _each_shard(old: OldShards) -> Iterator[OldShards]:
    for shard in old.shards:
        yield replace(old, shards=(shard,))


def _receipt(values: dict[str, Any]) -> tuple[Row, StoredImage]:
    """Makes of a record what a build describes: the row, and the image as it is stored."""
    sides = [values[f"image/object/bbox/{side}"] for side in ("xmin", "ymin", "xmax", "ymax")]
    boxes: tuple[Box, ...] = tuple(zip(*sides, values["image/object/text"], strict=True))
    image = StoredImage(
        encoded=values["image/encoded"],
        format=values["image/format"],
        height=values["image/height"],
        width=values["image/width"],
        channels=values["image/channels"],
        boxes=boxes,
        clipped_boxes=0,
        pixels=None,
        pixels_hash=int(values["image/key/pixels"], 16),
        full_size=(values["image/width"], values["image/height"]),
    )
    return Row(id=values["image/source_id"], uri="", boxes=boxes), image
