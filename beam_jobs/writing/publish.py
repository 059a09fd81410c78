"""Publishing: the staged files become the dataset directory, COMPLETED last."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from beam_jobs.errors import TRY_AGAIN, BuildError
from beam_jobs.options import Base
from beam_jobs.prepare.staging import Staging, delete_staging
from beam_jobs.sharding.deal import Plan
from beam_jobs.storage import files
from beam_jobs.writing.chunk_summary import ChunkSummary
from beam_jobs.writing.description import (
    CategoryCounts,
    Describer,
    FileContents,
    Summaries,
    WrittenRecords,
    padded,
)
from beam_jobs.writing.listings import ListedFile, ListedPairs
from beam_jobs.writing.output import read_excluded, read_manifest, write_tfds_files
from beam_jobs.writing.publication import Publication
from beam_jobs.writing.shards import Vocabularies, WrittenShard
from schemas.file_names import excluded_name, manifest_name
from schemas.least_certain import UncertainReceipt
from schemas.manifest import Counts, Manifest, Shard
from schemas.receipt import LAYOUT, Label
from schemas.versions import FIRST_VERSION, Versions


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """Publishes the finished files of a launch as the dataset directory.

    Attributes:
      staging: the whole staging directory, deleted at the end.
      labels: the labels that the user declared.
      split_names: the splits in their order.
      build_options: options that shaped the bytes, for the manifest.
      request: digest of all options, see `BuildOptions.request`.
      launch: identifies the launch of the build, see `BuildOptions.launch`.
      base: the dataset to append to; None for a new one.
    """

    staging: Staging
    labels: tuple[Label, ...]
    split_names: tuple[str, ...]
    build_options: Mapping[str, Any]
    request: str
    launch: str
    base: Base | None = None

    def publish(
        self,
        plan: Plan,
        inputs: int,
        chunks: Sequence[ChunkSummary],
        shards: Sequence[WrittenShard],
        summaries: Summaries,
        category_counts: CategoryCounts,
        duplicates: tuple[int, int],
        near_duplicates: ListedPairs | None,
        listings: Sequence[ListedFile],
        vocabularies: Vocabularies,
        centroids: str | None = None,
        spellings: Mapping[str, str] | None = None,
        least_certain: Sequence[UncertainReceipt] | None = None,
    ) -> None:
        """Checks the counts, writes the manifest and moves everything into place.

        Args:
          plan: the layouts that each shard was dealt.
          inputs: number of rows of the source.
          chunks: a summary of each prepared chunk.
          shards: all shards of all splits; their layouts have been compared with the plan.
          summaries: as in `WrittenRecords`.
          category_counts: as in `WrittenRecords`.
          duplicates: their number, and the number of those that differ in their labels.
          near_duplicates: the list of near-duplicates; None if none were looked for.
          listings: the quarantine's and the duplicates' files, with their checksums.
          vocabularies: category name to its vocabulary.
          centroids: as in `Describer.describe_layouts`.
          spellings: as there.
          least_certain: as there.

        Raises:
          BuildError: records or shards were lost.
        """
        if (prepared := sum(chunk.inputs for chunk in chunks)) != inputs:
            raise BuildError(
                f"the source has {inputs} rows, but {prepared} were prepared: {TRY_AGAIN}"
            )
        quarantined: Counter[str] = Counter()
        fingerprint = hashlib.sha256()
        # In the order of chunks, which follow from the ids: the fingerprint must not depend on the
        # workers.
        for chunk in sorted(chunks, key=lambda chunk: chunk.number):
            quarantined.update(chunk.quarantined)
            fingerprint.update(bytes.fromhex(chunk.fingerprint))
        known = sum(chunk.known for chunk in chunks)
        if self.base and known == inputs:
            delete_staging(self.staging)
            return  # the dataset has all of it already
        records = _records(shards, summaries, category_counts, vocabularies)
        check_deal(plan, records)
        counts = Counts(
            inputs=inputs,
            written=sum(one.shard.records for one in shards),
            duplicates=duplicates[0],
            duplicates_with_other_labels=duplicates[1],
            near_duplicates=near_duplicates.pairs if near_duplicates else 0,
            quarantined=dict(quarantined),
            clipped_boxes=sum(chunk.clipped_boxes for chunk in chunks),
            known=known,
        )
        older = read_manifest(self.base.directory, self.base.version) if self.base else None
        listed = dict([*listings, *(near_duplicates.listings if near_duplicates else ())])
        describer = self._describer()
        manifest, described = describer.describe(
            records,
            counts,
            fingerprint.hexdigest(),
            listings=listed,
            older=older.generations if older else (),
            about_layouts=describer.describe_layouts(older, centroids, spellings, least_certain),
        )
        if self.base:
            described |= _excluded_before(self.base, manifest)
        self._publish(manifest, described, shards, listed)

    def publish_compacted(
        self,
        plan: Plan,
        shards: Sequence[WrittenShard],
        summaries: Summaries,
        category_counts: CategoryCounts,
        vocabularies: Vocabularies,
        centroids: str | None = None,
        least_certain: Sequence[UncertainReceipt] | None = None,
    ) -> None:
        """Publishes the records of all generations, which were dealt anew, as one.

        The version has the inputs of all generations, so it shares the listings of what was left
        out with the versions before it. Arguments and errors are as in `publish`; centroids are
        given if all layouts were found anew.
        """
        if self.base is None:
            raise ValueError("there is no dataset to compact")
        records = _records(shards, summaries, category_counts, vocabularies)
        check_deal(plan, records)
        base = read_manifest(self.base.directory, self.base.version)
        old = base.generations
        fingerprint = hashlib.sha256()
        for generation in old:
            fingerprint.update(bytes.fromhex(generation.source_fingerprint))
        describer = self._describer()
        manifest, described = describer.describe(
            records,
            Counts.total(generation.counts for generation in old),
            fingerprint.hexdigest(),
            listings={
                name: one
                for generation in old
                for name, one in generation.files.items()
                if name != generation.summary_name
            },
            about_layouts=describer.describe_layouts(
                None if centroids else base, centroids, least_certain=least_certain
            ),
        )
        self._publish(manifest, described, shards)

    def _describer(self) -> Describer:
        return Describer(
            output=self.staging.output,
            version=self.base.version + 1 if self.base else FIRST_VERSION,
            labels=self.labels,
            split_names=self.split_names,
            build_options=self.build_options,
        )

    def _publish(
        self,
        manifest: Manifest,
        described: FileContents,
        shards: Sequence[WrittenShard],
        listings: Iterable[str] = (),
    ) -> None:
        move_version_into_place(
            manifest,
            described,
            [one.shard for one in shards],
            listings,
            staging=self.staging,
            launch=self.launch,
            request=self.request,
            base=self.base,
        )
        delete_staging(self.staging)


def move_version_into_place(
    manifest: Manifest,
    described: Mapping[str, bytes],
    shards: Sequence[Shard],
    listings: Iterable[str],
    *,
    staging: Staging,
    launch: str,
    request: str,
    base: Base | None,
    ended: Collection[int] = (),
) -> None:
    """Publishes the staged files of a version; see `Publication`.

    Args:
      manifest: its manifest.
      described: the files about its records, name to bytes.
      shards: the shards that are new.
      listings: names of its listings of the quarantine and of duplicates.
      staging: the staging directory.
      launch: as in `Publisher`.
      request: as in `Publisher`.
      base: as in `Publisher`.
      ended: versions that end with this publication.
    """
    text = manifest.to_json().encode()
    own = {manifest_name(manifest.version): text, **described}
    finished = staging.finished(launch)
    for name, data in own.items():
        files.write(files.join(finished, name), data)
    names = [*own, *listings, *(name for shard in shards for name in shard.files)]
    sizes = {shard.name: shard.size_bytes for shard in shards}
    versions = Versions.first(text)
    if base is not None:
        before = Versions.from_bytes(base.completed.encode())
        versions = before.adding(manifest.version, text).ending(ended)
    publication = Publication(
        launch=launch, request=request, completed=versions.to_bytes().decode()
    )
    publication.move_into_place(names, sizes, staging, base)
    write_tfds_files(staging, launch)


def _excluded_before(base: Base, manifest: Manifest) -> FileContents:
    """Makes the list of the records that the version before leaves out."""
    excluded = read_excluded(base.directory, read_manifest(base.directory, base.version))
    if not excluded:
        return {}
    carried = replace(excluded, dataset_digest=manifest.digest)
    return {excluded_name(manifest.version): carried.to_json().encode()}


def _records(
    shards: Sequence[WrittenShard],
    summaries: Summaries,
    category_counts: CategoryCounts,
    vocabularies: Vocabularies,
) -> WrittenRecords:
    return WrittenRecords(
        shards=shards,
        summaries=summaries,
        category_counts=category_counts,
        vocabularies={name: vocabulary.values for name, vocabulary in vocabularies.items()},
    )


def check_deal(plan: Plan, written: WrittenRecords) -> None:
    """Checks that each planned shard was written once, and every record of it counted.

    Raises:
      BuildError: shards or records were lost or repeated.
    """
    for number, split in enumerate(plan.split_names):
        own = [one for one in written.shards if one.split == split]
        numbers = Counter(one.number for one in own)
        # Of 3 planned shards, the numbers 0 1 1 are 3 that were written, but only one of them once;
        # the numbers 0 1 2 3 are one too many. Both comparisons are needed.
        once = sum(numbers[shard] == 1 for shard in range(plan.shards[number]))
        if not once == len(own) == plan.shards[number]:
            raise BuildError(
                f"{once:,} of the {plan.shards[number]:,} shards of split {split} were written "
                f"once: {TRY_AGAIN}"
            )
        records = sum(one.shard.records for one in own)
        for (of, category), counts in written.category_counts.items():
            if of != split:
                continue
            expected = plan.counts[:, number] if category == LAYOUT else counts
            if counts.sum() != records or (padded(counts, len(expected)) != expected).any():
                raise BuildError(
                    f"the {category} of {records:,} records of split {split} was not counted once "
                    f"each: {TRY_AGAIN}"
                )
