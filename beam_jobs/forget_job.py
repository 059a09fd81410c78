"""The forgetting as a Beam pipeline: files that hold some receipts are written anew without them.

The record indexes and listings of all versions are searched for the ids. Only shards and listings
of the newest version that hold some are read as a whole; no image is decoded.
"""

import json
from collections.abc import Iterator, Sequence

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsList

from beam_jobs.forgetting.plan import ForgetPlan, ShardTask, make_plan
from beam_jobs.forgetting.publish import ForgetPublisher
from beam_jobs.forgetting.rewrite import read_shard_summary, rewrite_listing, rewrite_shard
from beam_jobs.forgetting.search import Found, search, searched_files
from beam_jobs.layouts.descriptors import layouts_were_made
from beam_jobs.options import Base, ForgetOptions
from beam_jobs.sharding.histograms import Histogram
from beam_jobs.storage import files
from beam_jobs.writing.output import read_excluded, read_manifest
from beam_jobs.writing.shards import ShardWriter
from schemas.manifest import Manifest, Shard
from schemas.statistics import RecordSummary
from schemas.versions import Versions
from schemas.vocabulary import Vocabulary


def add_forget(pipeline: beam.Pipeline, options: ForgetOptions) -> None:
    """Adds the whole forgetting to a pipeline.

    Raises:
      ValueError: there is no dataset.
    """
    base = options.base
    if base is None:
        raise ValueError("there is no dataset to forget anything of")
    manifest = read_manifest(base.directory, base.version)
    directory, ids = base.directory, frozenset(options.ids)
    found = (
        pipeline
        | "Base" >> beam.Impulse()
        | "Files" >> beam.FlatMap(lambda _: searched_files(_manifests(base)))
        | "SpreadFiles" >> beam.Reshuffle()
        | "Search" >> beam.FlatMap(search, directory=directory, ids=ids)
    )  # Found
    plan = (
        pipeline
        | "OnceFound" >> beam.Impulse()
        | "Plan" >> beam.Map(_plan, found=AsList(found), options=options)
    )  # ForgetPlan
    writer = ShardWriter(
        directory=options.finished_directory,
        labels=manifest.labels,
        seed=manifest.build_options["seed"],
        first_numbers=base.first_shards,
        complete=True,
        makes_layouts=layouts_were_made(manifest.build_options),
        takes_fingerprints=manifest.build_options.get("near_duplicates", "off") != "off",
        compares_images=manifest.build_options.get("compare_images", False),
    )
    rewritten = (
        plan
        | "Shards" >> beam.FlatMap(lambda plan: plan.shards)
        | "SpreadShards" >> beam.Reshuffle()  # ShardTask
        | "RewriteShard"
        >> beam.FlatMap(
            rewrite_shard,
            directory=directory,
            writer=writer,
            vocabularies={name: Vocabulary(v) for name, v in manifest.vocabularies.items()},
        ).with_outputs("codes", "summaries", main="shards")
    )
    listings = (
        plan
        | "Listings" >> beam.FlatMap(lambda plan: plan.listings)
        | "SpreadListings" >> beam.Reshuffle()  # ListingTask
        | "RewriteListing"
        >> beam.Map(
            rewrite_listing, directory=directory, finished=options.finished_directory, ids=ids
        )
    )  # RewrittenListing
    kept = (
        plan
        | "KeptShards" >> beam.FlatMap(_kept_shards, manifest=manifest)
        | "SpreadKept" >> beam.Reshuffle()
        | "ReadSummary" >> beam.Map(read_shard_summary, directory=directory)
    )  # ((generation, split), RecordSummary)
    summaries = (
        (kept, rewritten["summaries"])
        | beam.Flatten()
        | "SumUp" >> beam.CombinePerKey(RecordSummary.merged)
    )
    codes = rewritten["codes"] | "CountValues" >> beam.CombinePerKey(Histogram())
    _ = plan | "Publish" >> beam.Map(
        ForgetPublisher(options=options).publish,
        shards=AsList(rewritten["shards"]),
        removed=AsDict(codes),
        summaries=AsDict(summaries),
        listings=AsList(listings),
    )


def _manifests(base: Base) -> list[Manifest]:
    """Reads the manifests of all versions, the newest last."""
    versions = Versions.from_bytes(base.completed.encode()).versions
    return [read_manifest(base.directory, version.number) for version in versions]


def _plan(_: bytes, *, found: Sequence[Found], options: ForgetOptions) -> ForgetPlan:
    assert options.base is not None
    manifests = _manifests(options.base)
    excluded = read_excluded(options.base.directory, manifests[-1])
    plan = make_plan(manifests, found, excluded, options)
    # For the progress bar.
    files.write(options.staging.plan, json.dumps({"shards": [len(plan.shards)]}).encode())
    return plan


def _kept_shards(plan: ForgetPlan, *, manifest: Manifest) -> Iterator[tuple[int, str, Shard]]:
    """Yields (generation, split, shard) of each shard that stays beside one written anew."""
    tasks: dict[tuple[int, str], list[ShardTask]] = {}
    for task in plan.shards:
        tasks.setdefault((task.generation, task.split), []).append(task)
    for (generation, split), own in tasks.items():
        gone = {task.position for task in own}
        for position, shard in enumerate(manifest.generations[generation].splits[split].shards):
            if position not in gone:
                yield generation, split, shard
