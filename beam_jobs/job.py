"""The build as a Beam pipeline: rows in, a dataset directory out.

Nothing but rows and references is ever grouped; image bytes go from a file to a file.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsDict, AsList, AsMultiMap, AsSingleton, TaggedOutput

from beam_jobs import files
from beam_jobs.deal import BlockStarts, Census, Plan, assign, make_plan
from beam_jobs.deduplicate import FindDuplicates, Pixels
from beam_jobs.errors import BuildError
from beam_jobs.options import BuildOptions
from beam_jobs.output import check_output
from beam_jobs.prepare import ChunkPreparer
from beam_jobs.prepared import Rejected
from beam_jobs.publish import ChunkSummary, Publisher
from beam_jobs.references import ORDERED_LOCATION, References
from beam_jobs.rehearse import ChunkRehearser
from beam_jobs.row_block import PackRows, RowBlock, into_chunks, into_groups
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
    preparer = ChunkPreparer(
        directory=options.prepared_directory, labels=labels, image=options.image, seed=options.seed
    )
    groups, inputs = _read(pipeline, options)
    prepared = groups | "Prepare" >> _prepare(preparer, inputs)
    duplicates = prepared["pixels"] | "FindDuplicates" >> FindDuplicates(inputs)  # Duplicate
    kept = prepared["references"] | "DropDuplicates" >> beam.Map(
        _without,
        dropped=AsMultiMap(
            duplicates | "KeyOfDuplicate" >> beam.Map(lambda each: (each.group, each.key))
        ),
    )  # (group, References)
    plan, starts, vocabularies = _plan(kept, prepared["rejected"], inputs, options)

    pieces = kept | "Deal" >> beam.FlatMap(
        _deal, plan=AsSingleton(plan), starts=AsMultiMap(starts), vocabularies=vocabularies
    )  # (Shard, bytes)
    empty = plan | "EveryShard" >> beam.FlatMap(_every_shard)  # (Shard, bytes)
    written = (
        (pieces, empty)
        | beam.Flatten()
        | "ByShard" >> beam.GroupByKey()  # (Shard, Iterable[bytes])
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
    prepared = groups | "Rehearse" >> _prepare(rehearser, inputs)
    kept = prepared["references"]  # (group, References)
    plan, starts, vocabularies = _plan(kept, prepared["rejected"], inputs, options)
    _ = kept | "Deal" >> beam.FlatMap(
        _deal, plan=AsSingleton(plan), starts=AsMultiMap(starts), vocabularies=vocabularies
    )


def _read(
    pipeline: beam.Pipeline, options: BuildOptions, *, dry_run: bool = False
) -> tuple[beam.PCollection[tuple[int, Iterable[RowBlock]]], AsSingleton]:
    """Rows by group of chunks, and how many there are."""
    path = files.join(options.staging, INPUTS_NAME)
    where = options.source.path

    def checked(count: int) -> int:
        if not dry_run:
            check_output(options)  # also here: a staged job may run long after it was checked
        if not count:
            raise BuildError(f"no receipts found in {where}: check --input and --input-format")
        files.write(path, json.dumps(count).encode())  # for whoever watches the progress
        return count

    blocks = (
        options.source.read(pipeline)  # Row
        | "Pack" >> beam.ParDo(PackRows(options.seed))  # RowBlock
    )
    inputs = AsSingleton(
        blocks
        | "RowsOfBlock" >> beam.Map(len)
        | "CountRows" >> beam.CombineGlobally(sum)
        | "CheckInputs" >> beam.Map(checked)
    )
    return (
        blocks
        | "IntoGroups" >> beam.FlatMap(into_groups, inputs=inputs)  # (group, RowBlock)
        | "ByGroup" >> beam.GroupByKey()  # (group, Iterable[RowBlock])
    ), inputs


def _prepare(preparer: ChunkPreparer | ChunkRehearser, inputs: AsSingleton) -> beam.PTransform:
    """(group, rows) to (group, References) and, tagged, what else is known of its chunks."""

    def prepare(group: tuple[int, Iterable[RowBlock]], inputs: int) -> Iterator[Any]:
        number, _ = group
        chunks = [preparer.prepare(*chunk) for chunk in into_chunks(group, inputs)]
        yield number, References.concatenate([chunk.references for chunk in chunks])
        yield TaggedOutput("pixels", Pixels.of(number, chunks))
        for chunk in chunks:
            yield TaggedOutput("summaries", ChunkSummary.of(chunk))
            yield from (TaggedOutput("rejected", each) for each in chunk.rejected)

    return beam.FlatMap(prepare, inputs=inputs).with_outputs(
        "pixels", "rejected", "summaries", main="references"
    )


def _without(
    group: tuple[int, References], dropped: Mapping[int, Iterable[bytes]]
) -> tuple[int, References]:
    number, references = group
    drop = set(dropped[number])
    if drop:
        kept = [key.tobytes() not in drop for key in references.key]
        references = references.take(np.array(kept, bool))
    return number, references


def _plan(
    kept: beam.PCollection[tuple[int, References]],
    rejected: beam.PCollection[Rejected],
    inputs: AsSingleton,
    options: BuildOptions,
) -> tuple[beam.PCollection[Plan], beam.PCollection[tuple[int, BlockStarts]], AsSingleton]:
    """The plan, each group's starts and the vocabularies."""
    vocabularies = AsSingleton(
        kept
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
        kept
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


def _census(group: tuple[int, References], vocabularies: Vocabularies) -> Census:
    number, references = group
    _, layout = references.recoded(vocabularies).categories[LAYOUT]
    return Census.of(
        number,
        group=references.group,
        layout=layout,
        size_bytes=int(references.location["length"].sum(dtype=np.int64)),
    )


def _deal(
    group: tuple[int, References],
    plan: Plan,
    starts: Mapping[int, Iterable[BlockStarts]],
    vocabularies: Vocabularies,
) -> Iterator[tuple[Shard, bytes]]:
    number, references = group
    if not len(references):
        return
    found = list(starts[number])
    if len(found) != 1:
        raise ValueError(
            f"group {number} of {len(references)} records was counted {len(found)} times: the "
            "runner lost or repeated records; run the build again on another runner"
        )
    _, layout = references.recoded(vocabularies).categories[LAYOUT]
    split, shard = assign(plan, found[0], group=references.group, layout=layout)
    locations = references.ordered_locations()
    order = np.lexsort((shard, split))
    places = np.stack([split[order], shard[order]], axis=1)
    firsts = np.flatnonzero(np.any(places[1:] != places[:-1], axis=1)) + 1
    for rows in np.split(order, firsts):
        yield (int(split[rows[0]]), int(shard[rows[0]])), locations[rows].tobytes()


def _every_shard(plan: Plan) -> Iterator[tuple[Shard, bytes]]:
    for split, count in enumerate(plan.shards.tolist()):
        for number in range(count):
            yield (split, number), b""


def _write_shard(
    shard: tuple[Shard, Iterable[bytes]],
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
