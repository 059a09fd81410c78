"""The compaction as a Beam pipeline: the records of all generations, dealt anew as one.

Every record keeps its split and its bytes. What is read of a shard before its records are copied
are its index and its lookup, so no image is read twice. None is decoded, unless images are compared
for near-duplicates: then the new lookups need their hashes. Only where layouts are to be found
anew, all records are read to be described; then these get their layouts, and are the same in all
else.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton

from beam_jobs.describe_records import DescribeRecords
from beam_jobs.errors import BuildError
from beam_jobs.find_layouts import FoundLayouts, find_layouts
from beam_jobs.layouts.descriptors import layouts_were_made
from beam_jobs.options import CompactOptions
from beam_jobs.prepare.chunks import buckets_of
from beam_jobs.prepare.known import OldGroups, OldShards
from beam_jobs.prepare.references import LOCATION, References, stage_references
from beam_jobs.prepare.staging import Staging
from beam_jobs.prepare_inputs import list_old_shards
from beam_jobs.shard_plan import LeftOut, plan_shards
from beam_jobs.storage import files
from beam_jobs.storage.files import ByteRange
from beam_jobs.write_shards import write_shards
from beam_jobs.writing.output import read_manifest
from beam_jobs.writing.publish import Publisher
from beam_jobs.writing.shards import ShardWriter
from schemas.file_names import shard_name, shard_number
from schemas.index import RecordIndex
from schemas.lookup import RecordLookup
from schemas.manifest import Manifest


@dataclass(frozen=True)
class ShardFiles:
    """The shards of a dataset, as `RecordFiles`: a number and a split name each."""

    directory: str
    split_names: tuple[str, ...]

    def records(self, chunk: int, digest: bytes, /) -> str:
        """Path of the shard with the number `chunk`; `digest` is the position of its split."""
        return files.join(
            self.directory, shard_name(self.split_names[int.from_bytes(digest, "big")], chunk)
        )


def add_compact(pipeline: beam.Pipeline, options: CompactOptions) -> None:
    """Adds the whole compaction to a pipeline.

    Raises:
      ValueError: there is no dataset to compact.
    """
    if options.base is None:
        raise ValueError("there is no dataset to compact")
    manifest = read_manifest(options.base.directory, options.base.version)
    records = manifest.counts.written
    vocabularies = pipeline | "OldValues" >> beam.Create([dict(manifest.vocabularies)])
    old = list_old_shards(pipeline, options.base)
    references = (
        old
        | "ReadIndexes"
        >> beam.FlatMap(
            read_references,
            vocabularies=AsSingleton(vocabularies),
            records=records,
            staging=options.staging,
        )  # (bucket, ByteRange)
        | "ByBucket" >> beam.GroupByKey()
        | "JoinReferences" >> beam.Map(_join, staging=options.staging)
    )  # (bucket, path of its References)
    found = _find_layouts(references, old, manifest, options)
    if found is not None:
        references = found.references
    plan, starts, values = plan_shards(
        references,
        records,
        LeftOut(),
        _splits_as_groups(len(options.splits)),
        options,
        deals_anew=True,
        new_layouts=found is not None,
    )
    writer = ShardWriter(
        record_files=ShardFiles(options.base.directory, tuple(options.splits)),
        directory=options.finished_directory,
        labels=options.labels,
        seed=options.seed,
        first_numbers=options.first_shards,
        complete=True,
        replaces_layouts=found is not None,
        restart_rows=options.image.get("restart_rows", False),
        makes_layouts=layouts_were_made(options.recorded()),
        takes_fingerprints=options.near_duplicates != "off",
        compares_images=options.compare_images,
    )
    written = write_shards(
        references,
        plan,
        starts,
        values,
        writer,
        least_certain=None if found is None else found.least_certain,
    )
    publisher = Publisher(
        staging=options.staging,
        labels=options.labels,
        split_names=tuple(options.splits),
        build_options=options.recorded(),
        request=options.request,
        launch=options.launch,
        base=options.base,
    )
    # A lambda, as Beam (2.72) fails over the annotation of an argument that is None.
    _ = plan | "Publish" >> beam.Map(
        lambda plan, **written: publisher.publish_compacted(plan, **written),
        **written.side_inputs(),
        vocabularies=values,
        centroids=None if found is None else found.centroids,
    )


def _find_layouts(
    references: beam.PCollection[tuple[int, str]],
    old: beam.PCollection[OldShards],
    manifest: Manifest,
    options: CompactOptions,
) -> FoundLayouts | None:
    """Finds the layouts of all records anew, if that is asked for."""
    if options.method is None:
        return None
    records = manifest.counts.written
    descriptors = old | "DescribeRecords" >> DescribeRecords(
        manifest.features, method=options.method, records=records, staging=options.staging
    )
    return find_layouts(
        references,
        descriptors,
        records,
        method=options.method,
        base=None,
        staging=options.staging,
    )


def _group_of(split: int) -> int:
    # The deal keeps a group in one split. All records of a split are made one group, so each stays
    # in its split. 0 is no group.
    return split + 1


def _splits_as_groups(splits: int) -> list[OldGroups]:
    """The split of each group that `read_references` makes."""
    return [(split, np.array([_group_of(split)], "<u8").tobytes()) for split in range(splits)]


def read_references(
    old: OldShards,
    vocabularies: Mapping[str, tuple[str, ...]],
    *,
    records: int,
    staging: Staging,
) -> Iterator[tuple[int, ByteRange]]:
    """Reads the references to the records of some shards.

    Args:
      old: the shards.
      vocabularies: category name to its values.
      records: number of records of the dataset.
      staging: where the references go.

    Yields:
      (bucket, where its references lie), of each bucket that has some.

    Raises:
      BuildError: an index or a lookup is damaged.
    """
    parts: dict[int, list[References]] = {}
    for shard, lookup in old.lookups():
        path = files.join(old.directory, shard.index_name)
        try:
            index = RecordIndex.from_bytes(files.read(path))
        except ValueError as error:
            raise BuildError(f"{path}: {error}; run python -m beam_jobs.verify") from error
        references = _references(old.split, shard_number(shard.name), index, lookup, vocabularies)
        buckets = buckets_of(lookup.key[:, 0], records)
        for bucket in np.unique(buckets).tolist():
            parts.setdefault(bucket, []).append(references.take(buckets == bucket))
    data = {bucket: References.concatenate(parts[bucket]).to_bytes() for bucket in sorted(parts)}
    joined = b"".join(data.values())
    path = staging.references(hashlib.sha256(joined).hexdigest())
    files.write(path, joined)
    offset = 0
    for bucket, own in data.items():
        yield bucket, (path, offset, len(own))
        offset += len(own)


def _references(
    split: int,
    number: int,
    index: RecordIndex,
    lookup: RecordLookup,
    vocabularies: Mapping[str, tuple[str, ...]],
) -> References:
    location = np.zeros(len(index), LOCATION)
    location["chunk"] = number
    location["digest"] = np.void(split.to_bytes(16, "big"))
    location["offset"] = index.offset
    location["length"] = index.length
    categories = {}
    for name, codes in index.categories.items():
        # The values of this shard alone: a vocabulary may have many thousands of them.
        used, own = np.unique(codes, return_inverse=True)
        values = tuple(vocabularies[name][code] for code in used.tolist())
        categories[name] = (values, own.astype(np.int32))
    return References(
        key=lookup.key,
        group=np.full(len(index), _group_of(split), np.uint64),
        location=location,
        categories=categories,
    )


def _join(located: tuple[int, Iterable[ByteRange]], *, staging: Staging) -> tuple[int, str]:
    """Joins the references of a bucket: (bucket, path of its References)."""
    bucket, ranges = located
    # In a fixed order: equal ids, which only a damaged dataset has, would come in any.
    parts = [References.from_bytes(data) for data in files.read_ranges(sorted(ranges))]
    return bucket, stage_references(References.concatenate(parts), staging)
