"""The build as a Beam pipeline: rows in, a dataset directory out.

Rows, references and image bytes go from file to file. A runner shuffles only where they lie: a
bucket's rows as byte ranges, its references as the path of a file, a shard's records as locations.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsList, AsSingleton, TaggedOutput

from beam_jobs.find_layouts import FoundLayouts, find_layouts
from beam_jobs.find_near_duplicates import (
    FoundNearDuplicates,
    NearDuplicatesOptions,
    find_near_duplicates,
    regroup,
)
from beam_jobs.merge_layouts import merge_layouts
from beam_jobs.options import BuildOptions
from beam_jobs.prepare.dry_run import DryRunPreparer
from beam_jobs.prepare.known import (
    OldGroups,
    OldPixels,
    OldShards,
    find_pixels_and_groups,
)
from beam_jobs.prepare.preparer import ChunkPreparer
from beam_jobs.prepare.references import References, stage_references
from beam_jobs.prepare.staging import Staging
from beam_jobs.prepare_inputs import count_reasons, list_old_shards, prepare, read_buckets
from beam_jobs.shard_plan import LeftOut, plan_shards
from beam_jobs.sharding.deal import Plan
from beam_jobs.sharding.duplicates import Duplicate, FindDuplicates, Pixels
from beam_jobs.storage import files
from beam_jobs.write_shards import write_shards
from beam_jobs.writing.chunk_summary import ChunkSummary
from beam_jobs.writing.listings import WriteDuplicates, WriteQuarantine, sum_pairs
from beam_jobs.writing.output import check_finished, check_foreign
from beam_jobs.writing.publish import Publisher
from beam_jobs.writing.shards import ShardWriter
from schemas.file_names import QUARANTINE, version_file


def add_build(pipeline: beam.Pipeline, options: BuildOptions) -> None:
    """Adds the whole build to a pipeline."""
    staging, finished = options.staging, options.finished_directory
    preparer = ChunkPreparer(
        staging=staging,
        labels=options.source.labels,
        image=options.image,
        seed=options.seed,
        method=options.method,
        makes_layouts=options.makes_layouts,
        takes_fingerprints=options.takes_fingerprints,
        compares_images=options.compare_images,
    )
    old = list_old_shards(pipeline, options.base) if options.base else None
    buckets, inputs = read_buckets(
        pipeline, options, seed=options.seed, check_output=partial(_check_output, options), old=old
    )
    prepared = buckets | "Prepare" >> prepare(preparer, inputs, options)
    pixels, groups = _find_pixels_and_groups(prepared, old)
    duplicates = pixels | "FindDuplicates" >> FindDuplicates(inputs)  # Duplicate
    dropped = _keys_by_bucket(duplicates, "KeysOfDuplicates")
    references = prepared["references"] | "DropDuplicates" >> _DropDuplicates(dropped, staging)
    near = _find_near_duplicates(prepared, dropped, groups, inputs, options)
    references = _regrouped(references, near, staging)
    if near.dropped is not None:
        dropped = _keys_by_bucket(near.dropped, "KeysOfNearDuplicates")
        references |= "DropNearDuplicates" >> _DropDuplicates(dropped, staging)
        duplicates = (duplicates, near.dropped) | "AllDuplicates" >> beam.Flatten()
    duplicate_counts = (
        duplicates
        | "OtherLabels" >> beam.Map(lambda one: (1, int(one.same_labels is False)))
        | "CountDuplicates" >> beam.CombineGlobally(sum_pairs).as_singleton_view()
    )
    found = _find_layouts(references, prepared, inputs, options)
    references = references if found is None else found.references
    references, spellings = _with_merged_spellings(references, options)
    plan, starts, vocabularies = plan_shards(
        references,
        inputs,
        LeftOut(
            reasons=count_reasons(prepared["rejected"]),
            max_bad_fraction=options.max_bad_fraction,
            duplicates=duplicate_counts,
            known=_count_known(prepared["summaries"]),
        ),
        () if near.groups is None else AsList(near.groups),
        options,
    )
    writer = ShardWriter(
        record_files=staging,
        directory=finished,
        labels=options.source.labels,
        seed=options.seed,
        first_numbers=options.first_shards,
        makes_layouts=options.makes_layouts,
        takes_fingerprints=options.takes_fingerprints,
        compares_images=options.compare_images,
    )
    written = write_shards(
        references,
        plan,
        starts,
        vocabularies,
        writer,
        least_certain=None if found is None else found.least_certain,
    )
    quarantine = prepared["rejected"] | "Quarantine" >> WriteQuarantine(
        finished, version_file(options.version, QUARANTINE)
    )
    listed = duplicates | "ListDuplicates" >> WriteDuplicates(finished, options.version)
    _publish(
        plan,
        options,
        inputs=inputs,
        chunks=AsList(prepared["summaries"]),
        **written.side_inputs(),
        duplicates=duplicate_counts,
        near_duplicates=near.united,
        listings=AsList((quarantine, listed) | "Listings" >> beam.Flatten()),
        vocabularies=vocabularies,
        centroids=None if found is None else found.centroids,
        spellings=spellings,
    )


def add_dry_run(pipeline: beam.Pipeline, options: BuildOptions) -> None:
    """Adds a dry run, which reads no image and ends with the plan file in the staging directory."""
    preparer = DryRunPreparer(
        labels=options.source.labels,
        image=options.image,
        seed=options.seed,
        method=options.method,
        takes_fingerprints=options.takes_fingerprints,
    )
    old = list_old_shards(pipeline, options.base) if options.base else None
    buckets, inputs = read_buckets(pipeline, options, seed=options.seed, old=old)
    prepared = buckets | "DryRun" >> prepare(preparer, inputs, options)
    _, groups = _find_pixels_and_groups(prepared, old)
    near = _find_near_duplicates(prepared, None, groups, inputs, options)
    references = _regrouped(prepared["references"], near, options.staging)
    found = _find_layouts(references, prepared, inputs, options)
    references = references if found is None else found.references
    references, _ = _with_merged_spellings(references, options)
    plan_shards(
        references,
        inputs,
        LeftOut(
            reasons=count_reasons(prepared["rejected"]),
            max_bad_fraction=options.max_bad_fraction,
            known=_count_known(prepared["summaries"]),
        ),
        () if near.groups is None else AsList(near.groups),
        options,
    )


def _find_pixels_and_groups(
    prepared: Any, old: beam.PCollection[OldShards] | None
) -> tuple[beam.PCollection[Pixels], beam.PCollection[OldGroups] | None]:
    """Finds the new records' pixels and groups in the dataset that is appended to.

    Returns:
      The pixels of the new records and of the old ones that are equal to them, and the splits of
      old groups that come again (OldGroups).
    """
    if old is None:
        return prepared["pixels"], None

    def find(old: OldShards, wanted: Sequence[tuple[str, str]]) -> Iterator[Any]:
        for found in find_pixels_and_groups(old, wanted):
            if isinstance(found, OldPixels):
                yield Pixels.of_old(found)
            else:
                yield TaggedOutput("groups", found)

    found = old | "FindPixels" >> beam.FlatMap(
        find, wanted=AsList(prepared["hashes"])
    ).with_outputs("groups", main="pixels")
    pixels = (prepared["pixels"], found["pixels"]) | "NewAndOld" >> beam.Flatten()
    return pixels, found["groups"]


def _find_near_duplicates(
    prepared: Any,
    dropped: beam.PCollection[tuple[int, bytes]] | None,
    groups: beam.PCollection[OldGroups] | None,
    inputs: AsSingleton,
    options: BuildOptions,
) -> FoundNearDuplicates:
    """Finds near-duplicates, if that is asked for."""
    if not options.takes_fingerprints:
        return FoundNearDuplicates(groups=groups)
    # Listed anew: with the collection in which ids are looked for, whose results these side inputs
    # come from, Beam's local runner (2.72) ends with "watermark-pending bundles did not execute".
    pieces, base = prepared["pieces"], options.base
    return find_near_duplicates(
        pieces,
        prepared["words"],
        list_old_shards(pieces.pipeline, base, "OldNumbers") if base else None,
        dropped,
        groups,
        inputs,
        NearDuplicatesOptions(
            policy=options.near_duplicates,
            staging=options.staging,
            directory=options.finished_directory,
            version=options.version,
        ),
    )


def _regrouped(
    references: beam.PCollection[tuple[int, str]], near: FoundNearDuplicates, staging: Staging
) -> beam.PCollection[tuple[int, str]]:
    """Gives the records of all buckets the groups that near-duplicates make."""
    if near.united is None:
        return references
    return references | "Regroup" >> beam.Map(regroup, united=near.united, staging=staging)


def _find_layouts(
    references: beam.PCollection[tuple[int, str]],
    prepared: Any,
    inputs: AsSingleton,
    options: BuildOptions,
) -> FoundLayouts | None:
    """Finds the layouts of the references, if that is asked for."""
    if options.method is None:
        return None
    return find_layouts(
        references,
        prepared["descriptors"],
        inputs,
        method=options.method,
        base=options.base,
        staging=options.staging,
    )


def _with_merged_spellings(
    references: beam.PCollection[tuple[int, str]], options: BuildOptions
) -> tuple[beam.PCollection[tuple[int, str]], AsSingleton | None]:
    """Merges the spellings of layouts, if that is asked for; returns them, too."""
    if not options.merge_spellings:
        return references, None
    return merge_layouts(references, base=options.base, staging=options.staging)


def _count_known(summaries: beam.PCollection[ChunkSummary]) -> AsSingleton:
    """Counts the inputs that the dataset has already."""
    return (
        summaries
        | "KnownOfChunk" >> beam.Map(attrgetter("known"))
        | "CountKnown" >> beam.CombineGlobally(sum).as_singleton_view()
    )


def _check_output(options: BuildOptions) -> None:
    """Raises BuildError if the output directory must not be written."""
    check_finished(options)
    check_foreign(options)


def _keys_by_bucket(
    duplicates: beam.PCollection[Duplicate], label: str
) -> beam.PCollection[tuple[int, bytes]]:
    """Joins the keys of duplicates: (bucket, keys of its duplicates, one behind the other)."""
    return (
        duplicates
        | label >> beam.Map(lambda one: (one.bucket, one.key))
        | f"{label}Joined" >> beam.CombinePerKey(b"".join)
    )


class _DropDuplicates(beam.PTransform):
    """Drops records from the references of all buckets: (bucket, path of its References).

    Args:
      dropped: of `_keys_by_bucket`.
      staging: where the staging files go.
    """

    def __init__(self, dropped: beam.PCollection[tuple[int, bytes]], staging: Staging) -> None:
        super().__init__()
        self._dropped = dropped
        self._staging = staging

    def expand(
        self, references: beam.PCollection[tuple[int, str]]
    ) -> beam.PCollection[tuple[int, str]]:
        return (
            (references, self._dropped)
            | "With" >> beam.CoGroupByKey()  # (bucket, ([path of its References], [keys]))
            | "Without" >> beam.Map(_without, staging=self._staging)
        )


def _without(
    joined: tuple[int, tuple[Iterable[str], Iterable[bytes]]], *, staging: Staging
) -> tuple[int, str]:
    """Drops the records with the given keys from a bucket's references."""
    bucket, (paths, dropped_keys) = joined
    (path,), keys = paths, list(dropped_keys)
    if not keys:
        return bucket, path
    references = References.from_bytes(files.read(path))
    # A key is two words of 8 bytes, so 16 bytes of the joined keys.
    dropped = set(np.frombuffer(b"".join(keys), "V16").tolist())
    remaining = [key.tobytes() not in dropped for key in references.key]
    return bucket, stage_references(references.take(np.array(remaining, bool)), staging)


def _publish(
    plan: beam.PCollection[Plan], options: BuildOptions, **written: beam.pvalue.AsSideInput | None
) -> None:
    """Publishes the dataset; `written` are the arguments of `Publisher.publish` but the plan."""
    publisher = Publisher(
        staging=options.staging,
        labels=options.source.labels,
        split_names=tuple(options.splits),
        build_options=options.recorded(),
        request=options.request,
        launch=options.launch,
        base=options.base,
    )
    # The plan is the one element; the side inputs are what has to be written before.
    _ = plan | "Publish" >> beam.Map(
        lambda plan, **written: publisher.publish(plan, **written), **written
    )
