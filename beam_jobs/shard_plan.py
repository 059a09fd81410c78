"""The middle of the job: from references to the plan, and to the shard of each record."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsDict, AsList, AsSingleton, TaggedOutput

from beam_jobs.errors import TRY_AGAIN, BuildError
from beam_jobs.options import Base, DealOptions
from beam_jobs.prepare.known import OldGroups, split_of_groups
from beam_jobs.prepare.references import References
from beam_jobs.sharding.deal import BucketCounts, BucketStarts, OldRecords, Plan, assign, make_plan
from beam_jobs.storage import files
from beam_jobs.storage.files import ByteRange
from beam_jobs.writing.output import read_manifest
from beam_jobs.writing.shards import Vocabularies
from schemas.receipt import LAYOUT
from schemas.vocabulary import Vocabulary

ShardKey = tuple[int, int]  # split, number
Starts = Mapping[int, ByteRange]  # bucket to where its BucketStarts lie


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Inputs that are not to be written.

    Attributes:
      reasons: reason code to how many were rejected for it, and an example.
      max_bad_fraction: the job fails if more of the inputs were rejected.
      duplicates: number of duplicates, and of those whose labels differ from those of the record
        that stays.
      known: number of inputs that the dataset has already.
    """

    reasons: AsDict | Mapping[str, tuple[int, str]] = field(default_factory=dict)
    max_bad_fraction: float = 0.0
    duplicates: AsSingleton | tuple[int, int] = (0, 0)
    known: AsSingleton | int = 0


def plan_shards(
    references: beam.PCollection[tuple[int, str]],
    inputs: AsSingleton | int,
    left_out: LeftOut,
    groups: AsList | Sequence[OldGroups],
    options: DealOptions,
    *,
    deals_anew: bool = False,
    new_layouts: bool = False,
) -> tuple[beam.PCollection[Plan], beam.PCollection[Starts], AsSingleton]:
    """Plans the shards.

    Args:
      references: (bucket, path of its References).
      inputs: number of inputs.
      left_out: those that are not among the references.
      groups: the splits of groups that the dataset has already (OldGroups).
      options: options of the job.
      deals_anew: whether the references are those of the dataset's own records.
      new_layouts: whether the layouts that the dataset has had are no longer any.

    Returns:
      The plan, where each bucket's starts lie, and the vocabularies by category name.
    """
    values = (
        references
        | "Values" >> beam.MapTuple(lambda _, path: _values(_read(path)))
        | "Union" >> beam.CombineGlobally(_union).as_singleton_view()
    )
    vocabularies = AsSingleton(
        references.pipeline
        | "OncePrepared" >> beam.Impulse()
        | "Vocabularies"
        >> beam.Map(_vocabularies, values=values, base=options.base, new_layouts=new_layouts)
    )
    bucket_counts = references | "CountBucket" >> beam.Map(
        _count_bucket, vocabularies=vocabularies
    )  # BucketCounts
    outputs = (
        references.pipeline
        | "OnceCounted" >> beam.Impulse()
        | "Plan"
        >> beam.FlatMap(
            _plan,
            # As a side input: all together they may be too large for one element.
            bucket_counts=AsList(bucket_counts),
            vocabularies=vocabularies,
            inputs=inputs,
            groups=groups,
            options=options,
            deals_anew=deals_anew,
            **vars(left_out),
        ).with_outputs("starts", main="plan")
    )
    return outputs["plan"], outputs["starts"], vocabularies


def _plan(
    _: bytes,
    *,
    bucket_counts: Sequence[BucketCounts],
    vocabularies: Vocabularies,
    inputs: int,
    groups: Sequence[OldGroups],
    options: DealOptions,
    deals_anew: bool,
    reasons: Mapping[str, tuple[int, str]],
    max_bad_fraction: float,
    duplicates: tuple[int, int],
    known: int,
) -> Iterator[Any]:
    """Yields the plan, once its file is written, and, tagged, where each bucket's starts lie.

    Raises:
      BuildError: too many inputs were rejected, or records were lost.
    """
    check_rejections(inputs, reasons, max_bad_fraction)
    rejected = sum(count for count, _ in reasons.values())
    counted = sum(int(bucket.count.sum()) for bucket in bucket_counts)
    left_out = duplicates[0]
    # The four numbers come from four branches of the job: a runner that loses or repeats an element
    # in one of them is found here.
    if counted + left_out + known + rejected != inputs:
        raise BuildError(
            f"of {inputs:,} inputs, {counted:,} are to be written, {left_out:,} are "
            f"duplicates, {known:,} are known and {rejected:,} are rejected: {TRY_AGAIN}"
        )
    layouts = vocabularies[LAYOUT].values
    old = _old_records(options, groups, layouts=len(layouts), deals_anew=deals_anew)
    plan, starts = make_plan(
        bucket_counts,
        layouts=len(layouts),
        fractions=options.splits,
        old=old,
        shards=options.shards,
        shard_bytes=options.shard_size_mb << 20,
        shards_multiple_of=options.shards_multiple_of,
    )
    outline = {
        "inputs": inputs,
        "rejected": {reason: count for reason, (count, _) in reasons.items()},
        "known": known,
        "layouts": layouts,
        "counts": plan.counts.tolist(),
        "old_counts": (old.counts if old else np.zeros_like(plan.counts)).tolist(),
        "shards": plan.shards.tolist(),
    }
    files.write(options.staging.plan, json.dumps(outline).encode())
    yield plan
    yield TaggedOutput("starts", _write_starts(options.staging.starts, starts))


def _old_records(
    options: DealOptions, groups: Sequence[OldGroups], *, layouts: int, deals_anew: bool
) -> OldRecords | None:
    """Describes the records that the dataset has, for the plan; None for a new dataset."""
    if options.base is None:
        return None
    old_groups, group_split = split_of_groups(groups)
    if deals_anew:  # each old record is one to be dealt
        counts = np.zeros((layouts, len(options.splits)), np.int64)
    else:
        splits = read_manifest(options.base.directory, options.base.version).splits
        old = np.stack([splits[name].layout_counts for name in options.splits], axis=1)
        counts = np.pad(old, ((0, layouts - len(old)), (0, 0)))  # of new layouts there are none
    return OldRecords(
        counts=counts,
        groups=old_groups,
        group_split=group_split,
    )


def _vocabularies(
    _: bytes, *, values: Mapping[str, set[str]], base: Base | None, new_layouts: bool
) -> dict[str, Vocabulary]:
    """Makes vocabularies of values, or adds them to those of the dataset that is appended to."""
    if base is None:
        return {name: Vocabulary.sorted(own) for name, own in values.items()}
    old = dict(read_manifest(base.directory, base.version).vocabularies)
    if new_layouts:
        old[LAYOUT] = ()
    return {name: Vocabulary(old[name]).grown(values.get(name, ())) for name in old}


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
        for reason, (count, example) in sorted(reasons.items(), key=lambda item: -item[1][0])
    )
    if rejected > max_bad_fraction * inputs:
        raise BuildError(
            f"{rejected:,} of {inputs:,} inputs were rejected, more than --max-bad-fraction "
            f"{max_bad_fraction:g} allows; nothing was published:{listing}\n"
            "Fix the inputs, or raise the limit to send them to the quarantine."
        )
    if rejected == inputs:
        raise BuildError(f"all {inputs:,} inputs were rejected; nothing was published:{listing}")


def _write_starts(path: str, starts: Iterable[tuple[int, BucketStarts]]) -> Starts:
    """Writes the starts of all buckets to one file: together they are too large a side input."""
    ranges, offset = {}, 0
    with files.create(path) as file:
        for bucket, bucket_starts in starts:
            data = bucket_starts.to_bytes()
            file.write(data)
            ranges[bucket] = (path, offset, len(data))
            offset += len(data)
    return ranges


def _read(path: str) -> References:
    return References.from_bytes(files.read(path))


def _count_bucket(references: tuple[int, str], vocabularies: Vocabularies) -> BucketCounts:
    bucket, path = references
    records = _read(path)
    return BucketCounts.of(
        bucket,
        group=records.group,
        layout=records.codes(LAYOUT, vocabularies[LAYOUT]),
        size_bytes=int(records.location["length"].sum(dtype=np.int64)),
    )


def deal(
    references: tuple[int, str],
    plan: Plan,
    starts: Starts,
    vocabularies: Vocabularies,
) -> Iterator[tuple[ShardKey, bytes]]:
    """Yields (shard, ORDERED_LOCATION as bytes) for each shard that gets records of a bucket."""
    bucket, path = references
    records = _read(path)
    if not len(records):
        return
    if bucket not in starts:
        raise BuildError(f"bucket {bucket} of {len(records)} records was not counted: {TRY_AGAIN}")
    bucket_starts = BucketStarts.from_bytes(
        files.read_range(*starts[bucket]), splits=len(plan.split_names)
    )
    layout = records.codes(LAYOUT, vocabularies[LAYOUT])
    split, shard = assign(plan, bucket_starts, group=records.group, layout=layout)
    locations = records.ordered_locations(layout)
    # Brings records of the same shard together: of the shards 1 0 1 the order is 1 0 2, which is
    # cut before its second element, where shard 1 begins.
    order = np.lexsort((shard, split))
    shards = np.stack([split[order], shard[order]], axis=1)
    cuts = np.flatnonzero(np.any(shards[1:] != shards[:-1], axis=1)) + 1
    for rows in np.split(order, cuts):
        yield (int(split[rows[0]]), int(shard[rows[0]])), locations[rows].tobytes()


def every_shard(plan: Plan) -> Iterator[tuple[ShardKey, bytes]]:
    """Yields no bytes for each shard, so that one without records is written too."""
    for split, count in enumerate(plan.shards.tolist()):
        for number in range(count):
            yield (split, number), b""


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


def count_and_example(parts: Iterable[tuple[int, str]]) -> tuple[int, str]:
    """Sum of the counts, and the first example in the order of text."""
    counts, examples = zip(*parts, strict=True)
    return sum(counts), min(examples)
