"""The build as a Beam pipeline: rows in, a dataset directory out.

Nothing but rows and references is ever grouped; image bytes go from a file to a file.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsDict, AsList, AsSingleton, TaggedOutput

from beam_jobs import files
from beam_jobs.chunk import chunk_count, chunk_of, chunks_per_block
from beam_jobs.deal import BlockStarts, Census, Plan, assign, make_plan
from beam_jobs.deduplicate import Duplicate, FindDuplicates
from beam_jobs.errors import BuildError
from beam_jobs.options import BuildOptions
from beam_jobs.output import check_output
from beam_jobs.prepare import ChunkPreparer, PrepareChunk, pretend_chunk
from beam_jobs.prepared import PreparedChunk, Rejected
from beam_jobs.publish import ChunkSummary, Publisher
from beam_jobs.references import References, hash_words
from beam_jobs.row import Row
from beam_jobs.write import (
    ShardWriter,
    Vocabularies,
    WriteDuplicates,
    WriteQuarantine,
    WrittenShard,
)
from schemas.receipt import LAYOUT

INPUTS_NAME = "inputs.json"
PLAN_NAME = "plan.json"
Shard = tuple[int, int]  # split, number


def add_build(pipeline: beam.Pipeline, options: BuildOptions) -> None:
    """Adds the whole build to a pipeline."""
    labels = options.source.labels
    chunks, inputs = _read(pipeline, options)
    preparer = ChunkPreparer(
        directory=options.prepared_directory, labels=labels, image=options.image, seed=options.seed
    )
    prepared = chunks | "Prepare" >> beam.ParDo(PrepareChunk(preparer))  # PreparedChunk
    rejected = prepared | "Rejected" >> beam.FlatMap(lambda chunk: chunk.rejected)  # Rejected
    duplicates = prepared | "FindDuplicates" >> FindDuplicates(inputs)  # Duplicate
    blocks = _blocks(prepared, duplicates, inputs)  # (block, References)
    plan, starts, vocabularies = _plan(blocks, rejected, inputs, options)

    pieces = (
        {"references": blocks, "starts": starts}
        | "JoinPlan" >> beam.CoGroupByKey()  # (block, {references: [...], starts: [...]})
        | "Deal" >> beam.FlatMap(_deal, plan=AsSingleton(plan), vocabularies=vocabularies)
    )  # (Shard, References)
    empty = plan | "EveryShard" >> beam.FlatMap(_every_shard)  # (Shard, None)
    written = (
        (pieces, empty)
        | beam.Flatten()
        | "ByShard" >> beam.GroupByKey()  # (Shard, Iterable[References | None])
        | "WriteShard"
        >> beam.Map(
            _write_shard,
            writer=ShardWriter(directory=options.staged_directory, labels=labels),
            plan=AsSingleton(plan),
            vocabularies=vocabularies,
        )
    )  # WrittenShard
    quarantine = rejected | "Quarantine" >> WriteQuarantine(options.staged_directory)  # path
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
        chunks=AsList(prepared | "Summarise" >> beam.Map(_summary)),
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
    chunks, inputs = _read(pipeline, options, dry_run=True)
    prepared = chunks | "Pretend" >> beam.MapTuple(
        lambda number, rows: pretend_chunk(
            number,
            rows,
            labels=options.source.labels,
            image=options.image,
            seed=options.seed,
        )
    )  # PreparedChunk
    rejected = prepared | "Rejected" >> beam.FlatMap(lambda chunk: chunk.rejected)  # Rejected
    no_duplicates = prepared | "NoDuplicates" >> beam.FlatMap(lambda _: ())  # Duplicate
    blocks = _blocks(prepared, no_duplicates, inputs)  # (block, References)
    _plan(blocks, rejected, inputs, options)


def _read(
    pipeline: beam.Pipeline, options: BuildOptions, *, dry_run: bool = False
) -> tuple[beam.PCollection[tuple[int, Iterable[bytes]]], AsSingleton]:
    """Rows by chunk, serialised, and how many there are."""
    path = files.join(options.staging, INPUTS_NAME)
    where = options.source.path

    def checked(count: int) -> int:
        if not dry_run:
            check_output(options)  # also here: a staged job may run long after it was checked
        if not count:
            raise BuildError(f"no receipts found in {where}: check --input and --input-format")
        files.write(path, json.dumps(count).encode())  # for whoever watches the progress
        return count

    def chunked(row: Row, inputs: int) -> tuple[int, bytes]:
        word, _ = hash_words(row.id, seed=options.seed)
        return chunk_of(word, chunk_count(inputs)), row.to_bytes()

    rows = options.source.read(pipeline)  # Row
    count = rows | "CountRows" >> beam.combiners.Count.Globally() | beam.Map(checked)
    inputs = AsSingleton(count)
    return (
        rows
        | "Chunk" >> beam.Map(chunked, inputs=inputs)  # (chunk, bytes)
        | "ByChunk" >> beam.GroupByKey()  # (chunk, Iterable[bytes])
    ), inputs


def _blocks(
    prepared: beam.PCollection[PreparedChunk],
    duplicates: beam.PCollection[Duplicate],
    inputs: AsSingleton,
) -> beam.PCollection[tuple[int, References]]:
    """References of neighbouring chunks without the duplicates, sorted by key."""

    def block_of(chunk: int, inputs: int) -> int:
        return chunk // chunks_per_block(inputs)

    def block(number: int, parts: Mapping[str, Any]) -> Iterator[tuple[int, References]]:
        references = References.concatenate(list(parts["references"]))
        dropped = np.array(list(parts["dropped"]), np.uint64).reshape(-1, 2)
        # Keys are 128-bit hashes: viewed as one void value each, they can be compared.
        dtype = np.dtype((np.void, 16))
        keys = np.ascontiguousarray(references.key).view(dtype)[:, 0]
        kept = references.take(~np.isin(keys, dropped.view(dtype)[:, 0]))
        if len(kept):
            yield number, kept

    return (
        {
            "references": prepared
            | "BlockOfChunk"
            >> beam.Map(lambda c, inputs: (block_of(c.number, inputs), c.references), inputs),
            "dropped": duplicates
            | "BlockOfDuplicate"
            >> beam.Map(lambda d, inputs: (block_of(d.chunk, inputs), d.key), inputs),
        }
        | "ByBlock" >> beam.CoGroupByKey()  # (block, {references: [...], dropped: [...]})
        | "Block" >> beam.FlatMapTuple(block)
    )


def _plan(
    blocks: beam.PCollection[tuple[int, References]],
    rejected: beam.PCollection[Rejected],
    inputs: AsSingleton,
    options: BuildOptions,
) -> tuple[beam.PCollection[Plan], beam.PCollection[tuple[int, BlockStarts]], AsSingleton]:
    """The plan, each block's starts and the vocabularies."""
    vocabularies = AsSingleton(
        blocks
        | "Values" >> beam.MapTuple(lambda _, references: _values(references))
        | "Vocabularies" >> beam.CombineGlobally(_union)
        | "SortValues" >> beam.Map(lambda sets: {name: sorted(sets[name]) for name in sets})
    )
    reasons = AsDict(
        rejected
        | "CountReasons" >> beam.Map(lambda each: (each.reason, (1, f"{each.id}: {each.message}")))
        | "PerReason" >> beam.CombinePerKey(_count_and_example)
    )

    def plan(
        censuses: Sequence[Census],
        vocabularies: Vocabularies,
        inputs: int,
        reasons: Mapping[str, tuple[int, str]],
    ) -> Iterator[Any]:
        check_rejections(inputs, reasons, options.max_bad_fraction)
        layouts = vocabularies[LAYOUT]
        decided, starts = make_plan(
            censuses,
            layouts=len(layouts),
            fractions=options.splits,
            shards=options.shards,
            shard_bytes=options.shard_size_mb << 20,
            shards_multiple_of=options.shards_multiple_of,
        )
        outline = {
            "inputs": inputs,
            "rejected": {reason: count for reason, (count, _) in reasons.items()},
            "layouts": layouts,
            "counts": decided.counts.tolist(),
            "shards": decided.shards.tolist(),
        }
        files.write(files.join(options.staging, PLAN_NAME), json.dumps(outline).encode())
        yield decided
        yield from (TaggedOutput("starts", each) for each in starts.items())

    outputs = (
        blocks
        | "Census" >> beam.Map(_census, vocabularies=vocabularies)
        | "AllCensuses" >> beam.combiners.ToList()
        | "Plan"
        >> beam.FlatMap(
            plan, vocabularies=vocabularies, inputs=inputs, reasons=reasons
        ).with_outputs("starts", main="plan")
    )
    return outputs["plan"], outputs["starts"], vocabularies


def check_rejections(
    inputs: int, reasons: Mapping[str, tuple[int, str]], max_bad_fraction: float
) -> None:
    """Stops the build if too many inputs were rejected.

    Args:
      inputs: number of inputs.
      reasons: reason code to how many were rejected for it, and an example.
      max_bad_fraction: the limit.

    Raises:
      BuildError: more inputs were rejected than allowed, or all of them.
    """
    rejected = sum(count for count, _ in reasons.values())
    listing = "".join(
        f"\n  {count:>8,}  {reason}, such as {example}"
        for reason, (count, example) in sorted(reasons.items(), key=lambda each: -each[1][0])
    )
    if rejected > max_bad_fraction * inputs:
        raise BuildError(
            f"{rejected:,} of {inputs:,} inputs are bad, more than --max-bad-fraction "
            f"{max_bad_fraction:g} allows; nothing was published:{listing}\n"
            "Mend the inputs, or raise the limit to send them to quarantine."
        )
    if rejected == inputs:
        raise BuildError(f"all {inputs:,} inputs are bad; nothing was published:{listing}")


def _census(block: tuple[int, References], vocabularies: Vocabularies) -> Census:
    number, references = block
    _, layout = references.recoded(vocabularies).categories[LAYOUT]
    return Census.of(
        number,
        group=references.group,
        layout=layout,
        size_bytes=int(references.length.sum()),
    )


def _deal(
    block: tuple[int, Mapping[str, Any]], plan: Plan, vocabularies: Vocabularies
) -> Iterator[tuple[Shard, References]]:
    _, joined = block
    [references], [starts] = joined["references"], joined["starts"]
    _, layout = references.recoded(vocabularies).categories[LAYOUT]
    split, shard = assign(plan, starts, group=references.group, layout=layout)
    light = replace(references, categories={})
    order = np.lexsort((shard, split))
    places = np.stack([split[order], shard[order]], axis=1)
    firsts = np.flatnonzero(np.any(places[1:] != places[:-1], axis=1)) + 1
    for rows in np.split(order, firsts):
        yield (int(split[rows[0]]), int(shard[rows[0]])), light.take(rows)


def _every_shard(plan: Plan) -> Iterator[tuple[Shard, None]]:
    for split, count in enumerate(plan.shards.tolist()):
        for number in range(count):
            yield (split, number), None


def _write_shard(
    shard: tuple[Shard, Iterable[References | None]],
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
        [part for part in parts if part is not None],
        vocabularies,
    )


def _values(references: References) -> dict[str, set[str]]:
    return {
        name: {values[code] for code in np.unique(codes).tolist()}
        for name, (values, codes) in references.categories.items()
    }


def _union(parts: Iterable[Mapping[str, set[str]]]) -> dict[str, set[str]]:
    union: dict[str, set[str]] = {}
    for part in parts:
        for name, values in part.items():
            union.setdefault(name, set()).update(values)
    return union


def _count_and_example(parts: Iterable[tuple[int, str]]) -> tuple[int, str]:
    counts, examples = zip(*parts, strict=True)
    return sum(counts), min(examples)


def _sum_pairs(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    summed = np.array([(0, 0), *pairs]).sum(axis=0)
    return int(summed[0]), int(summed[1])


def _summary(chunk: PreparedChunk) -> ChunkSummary:
    return ChunkSummary(
        number=chunk.number,
        inputs=chunk.inputs,
        quarantined=dict(Counter(each.reason for each in chunk.rejected)),
        clipped_boxes=chunk.clipped_boxes,
        fingerprint=chunk.fingerprint,
    )
