"""The build as a Beam pipeline: rows in, a dataset directory out.

Rows, references and image bytes go from a file to a file; what is grouped is where they lie.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsList, AsMultiMap, AsSingleton, TaggedOutput

from beam_jobs import files
from beam_jobs.deal import Plan
from beam_jobs.deduplicate import FindDuplicates, Pixels
from beam_jobs.errors import BuildError
from beam_jobs.options import BuildOptions
from beam_jobs.output import check_output
from beam_jobs.prepare import ChunkPreparer
from beam_jobs.publish import ChunkSummary, Publisher
from beam_jobs.references import ORDERED_LOCATION, References
from beam_jobs.rehearse import ChunkRehearser
from beam_jobs.row_file import Range, RowFile, WriteRows, read_chunks
from beam_jobs.shard_plan import ShardKey, deal, every_shard, plan_shards
from beam_jobs.write import (
    ShardWriter,
    Vocabularies,
    WriteDuplicates,
    WriteQuarantine,
    WrittenShard,
)

INPUTS_NAME = "inputs.json"


def add_build(pipeline: beam.Pipeline, options: BuildOptions) -> None:
    """Adds the whole build to a pipeline."""
    labels = options.source.labels
    preparer = ChunkPreparer(
        directory=options.prepared_directory, labels=labels, image=options.image, seed=options.seed
    )
    groups, inputs = _read(pipeline, options)
    prepared = groups | "Prepare" >> _prepare(preparer, inputs, options)
    duplicates = prepared["pixels"] | "FindDuplicates" >> FindDuplicates(inputs)  # Duplicate
    kept = prepared["references"] | "DropDuplicates" >> beam.Map(
        _without,
        directory=options.references_directory,
        dropped=AsMultiMap(
            duplicates | "KeyOfDuplicate" >> beam.Map(lambda each: (each.group, each.key))
        ),
    )  # (group, path of its References)
    plan, starts, vocabularies = plan_shards(
        kept,
        prepared["rejected"],
        inputs,
        AsSingleton(duplicates | "AllDuplicates" >> beam.combiners.Count.Globally()),
        options,
    )

    pieces = kept | "Deal" >> beam.FlatMap(
        deal, plan=AsSingleton(plan), starts=AsSingleton(starts), vocabularies=vocabularies
    )  # (ShardKey, bytes)
    empty = plan | "EveryShard" >> beam.FlatMap(every_shard)  # (ShardKey, bytes)
    written = (
        (pieces, empty)
        | beam.Flatten()
        | "ByShard" >> beam.GroupByKey()  # (ShardKey, Iterable[bytes])
        | "WriteShard"
        >> beam.Map(
            _write_shard,
            writer=ShardWriter(
                prepared=options.prepared_directory,
                directory=options.staged_directory,
                labels=labels,
            ),
            plan=AsSingleton(plan),
            vocabularies=vocabularies,
        )
    )  # WrittenShard
    quarantine = prepared["rejected"] | "Quarantine" >> WriteQuarantine(options.staged_directory)
    listed = duplicates | "ListDuplicates" >> WriteDuplicates(options.staged_directory)  # path
    publisher = Publisher(
        output=options.output,
        staging=options.staging,
        staged=options.staged_directory,
        labels=labels,
        split_names=tuple(options.splits),
        build_options=options.recorded(),
        request=options.request,
    )
    # The plan is the one element; the side inputs are what has to be written before.
    _ = plan | "Publish" >> beam.Map(
        lambda _, **written: publisher.publish(**written),
        inputs=inputs,
        chunks=AsList(prepared["summaries"]),
        shards=AsList(written),
        duplicates=AsSingleton(
            duplicates
            | "SameLabels" >> beam.Map(lambda each: (1, int(not each.same_labels)))
            | "CountDuplicates" >> beam.CombineGlobally(_sum_pairs)
        ),
        listings=AsList((quarantine, listed) | "Listings" >> beam.Flatten()),
        vocabularies=vocabularies,
    )


def add_dry_run(pipeline: beam.Pipeline, options: BuildOptions) -> None:
    """Adds a rehearsal that reads no image and ends with the plan file in the staging."""
    rehearser = ChunkRehearser(labels=options.source.labels, image=options.image, seed=options.seed)
    groups, inputs = _read(pipeline, options, dry_run=True)
    prepared = groups | "Rehearse" >> _prepare(rehearser, inputs, options)
    kept = prepared["references"]  # (group, path of its References)
    plan, starts, vocabularies = plan_shards(kept, prepared["rejected"], inputs, 0, options)
    _ = kept | "Deal" >> beam.FlatMap(
        deal, plan=AsSingleton(plan), starts=AsSingleton(starts), vocabularies=vocabularies
    )


def _read(
    pipeline: beam.Pipeline, options: BuildOptions, *, dry_run: bool = False
) -> tuple[beam.PCollection[tuple[int, Iterable[Range]]], AsSingleton]:
    """Where the rows of each group of chunks lie, and how many rows there are."""
    path = files.join(options.staging, INPUTS_NAME)
    where = options.source.path

    def checked(count: int) -> int:
        if not dry_run:
            check_output(options)  # also here: a staged job may run long after it was checked
        if not count:
            raise BuildError(f"no receipts found in {where}: check --input and --input-format")
        files.write(path, json.dumps(count).encode())  # for whoever watches the progress
        return count

    row_files = (
        options.source.read(pipeline)  # Row
        | "WriteRows" >> beam.ParDo(WriteRows(options.rows_directory, options.seed))  # RowFile
    )
    inputs = AsSingleton(
        row_files
        | "RowsOfFile" >> beam.Map(len)
        | "CountRows" >> beam.CombineGlobally(sum)
        | "CheckInputs" >> beam.Map(checked)
    )
    return (
        row_files
        | "IntoGroups" >> beam.FlatMap(RowFile.ranges, inputs=inputs)  # (group, Range)
        | "ByGroup" >> beam.GroupByKey()  # (group, Iterable[Range])
    ), inputs


def _prepare(
    preparer: ChunkPreparer | ChunkRehearser, inputs: AsSingleton, options: BuildOptions
) -> beam.PTransform:
    """(group, ranges) to (group, path of its References) and, tagged, what else is known of it."""

    def prepare(group: tuple[int, Iterable[Range]], inputs: int) -> Iterator[Any]:
        number, ranges = group
        rows = read_chunks(number, ranges, inputs)
        if not rows:
            return  # the ranges held rows of its neighbours only
        chunks = [preparer.prepare(chunk, rows.pop(chunk)) for chunk in sorted(rows)]
        references = References.concatenate([chunk.references for chunk in chunks])
        yield number, _stage(references, options.references_directory)
        yield TaggedOutput("pixels", Pixels.of(number, chunks))
        for chunk in chunks:
            yield TaggedOutput("summaries", ChunkSummary.of(chunk))
            yield from (TaggedOutput("rejected", each) for each in chunk.rejected)

    return beam.FlatMap(prepare, inputs=inputs).with_outputs(
        "pixels", "rejected", "summaries", main="references"
    )


def _stage(references: References, directory: str) -> str:
    """Path of a staging file of these references, named by its contents."""
    data = references.to_bytes()
    path = files.join(directory, hashlib.sha256(data).hexdigest())
    files.write(path, data)
    return path


def _without(
    kept: tuple[int, str], *, dropped: Mapping[int, Iterable[bytes]], directory: str
) -> tuple[int, str]:
    group, path = kept
    if not (drop := set(dropped[group])):
        return kept
    references = References.from_bytes(files.read(path))
    rows = [key.tobytes() not in drop for key in references.key]
    return group, _stage(references.take(np.array(rows, bool)), directory)


def _write_shard(
    shard: tuple[ShardKey, Iterable[bytes]],
    *,
    writer: ShardWriter,
    plan: Plan,
    vocabularies: Vocabularies,
) -> WrittenShard:
    (split, number), parts = shard
    return writer.write(
        plan.split_names[split],
        number,
        int(plan.shards[split]),
        np.frombuffer(b"".join(parts), ORDERED_LOCATION),
        vocabularies,
    )


def _sum_pairs(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    summed = np.array([(0, 0), *pairs]).sum(axis=0)
    return int(summed[0]), int(summed[1])
