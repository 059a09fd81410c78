"""Publishing: the staged files become the dataset directory, COMPLETED last."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from beam_jobs.errors import TRY_AGAIN, BuildError
from beam_jobs.options import Base
from beam_jobs.prepare.prepared_chunk import PreparedChunk
from beam_jobs.prepare.staging import Staging, delete_staging
from beam_jobs.sharding.deal import Plan
from beam_jobs.sharding.splits import IntArray
from beam_jobs.storage import files
from beam_jobs.storage.checksums import checksum
from beam_jobs.writing.listings import ListedFile, ListedPairs
from beam_jobs.writing.output import (
    read_centroids,
    read_excluded,
    read_least_certain,
    read_manifest,
    read_spellings,
    read_summary_of,
    write_tfds_files,
)
from beam_jobs.writing.publication import Publication
from beam_jobs.writing.shards import Vocabularies, WrittenShard
from schemas import __version__
from schemas.file_names import (
    centroids_name,
    excluded_name,
    least_certain_name,
    manifest_name,
    schema_name,
    spellings_name,
    statistics_name,
    summary_name,
)
from schemas.least_certain import LeastCertain, UncertainReceipt
from schemas.manifest import Counts, FileChecksum, Generation, Manifest, Shard, Split
from schemas.receipt import LAYOUT, Label, receipt_features
from schemas.spellings import Spellings
from schemas.statistics import RecordSummary
from schemas.summary_file import summary_text
from schemas.tfdv import schema_text, statistics_bytes
from schemas.versions import FIRST_VERSION, Versions

CategoryCounts = Mapping[
    tuple[str, str], IntArray
]  # (split, category) to the records of each value
_NOTHING: Mapping[str, bytes] = MappingProxyType({})
Summaries = Mapping[str, RecordSummary]  # split to the statistics of its records


@dataclass(frozen=True, kw_only=True)
class ChunkSummary:
    """The numbers of a chunk that go into the manifest."""

    number: int
    inputs: int
    quarantined: Mapping[str, int]
    known: int
    clipped_boxes: int
    fingerprint: str

    @classmethod
    def of(cls, chunk: PreparedChunk) -> Self:
        """Summary of a prepared chunk."""
        return cls(
            number=chunk.number,
            inputs=chunk.inputs,
            quarantined=dict(Counter(rejected.reason for rejected in chunk.rejected)),
            known=chunk.known,
            clipped_boxes=chunk.clipped_boxes,
            fingerprint=chunk.fingerprint,
        )


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

    @property
    def version(self) -> int:
        """The version that is published."""
        return self.base.version + 1 if self.base else FIRST_VERSION

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
          summaries: split to the statistics of its records; none of a split without records.
          category_counts: (split, category) to the records of each value; values at the end that
            no record has may be missing.
          duplicates: their number, and the number of those that differ in their labels.
          near_duplicates: the list of near-duplicates; None if none were looked for.
          listings: the quarantine's and the duplicates' files, with their checksums.
          vocabularies: category name to its vocabulary.
          centroids: path of the centroids of the layouts, if they were found.
          spellings: names that were merged, and those in their place; None if none were to be.
          least_certain: the new receipts whose layouts are the least certain; None if layouts were
            not found.

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
        _check_deal(plan, shards, category_counts)
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
        manifest, described = self.describe(
            counts,
            fingerprint.hexdigest(),
            shards,
            summaries,
            category_counts,
            {name: vocabulary.values for name, vocabulary in vocabularies.items()},
            listings=listed,
            older=older.generations if older else (),
            about_layouts=self._about_layouts(older, centroids, spellings, least_certain),
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

        Arguments and errors are as in `publish`; centroids are given if all layouts were found
        anew. The version has the inputs of all generations, so
        it shares the listings of what was left out with the versions before it.
        """
        if self.base is None:
            raise ValueError("there is no dataset to compact")
        _check_deal(plan, shards, category_counts)
        base = read_manifest(self.base.directory, self.base.version)
        old = base.generations
        fingerprint = hashlib.sha256()
        for generation in old:
            fingerprint.update(bytes.fromhex(generation.source_fingerprint))
        manifest, described = self.describe(
            Counts.total(generation.counts for generation in old),
            fingerprint.hexdigest(),
            shards,
            summaries,
            category_counts,
            {name: vocabulary.values for name, vocabulary in vocabularies.items()},
            listings={
                name: one
                for generation in old
                for name, one in generation.files.items()
                if name != generation.summary_name
            },
            about_layouts=self._about_layouts(
                None if centroids else base, centroids, least_certain=least_certain
            ),
        )
        self._publish(manifest, described, shards)

    def _publish(
        self,
        manifest: Manifest,
        described: Mapping[str, bytes],
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

    def describe(
        self,
        counts: Counts,
        source_fingerprint: str,
        shards: Sequence[WrittenShard],
        summaries: Summaries,
        category_counts: CategoryCounts,
        vocabularies: Mapping[str, tuple[str, ...]],
        *,
        listings: Mapping[str, FileChecksum],
        older: tuple[Generation, ...] = (),
        about_layouts: Mapping[str, bytes] = _NOTHING,
    ) -> tuple[Manifest, dict[str, bytes]]:
        """Makes the manifest, and the files about the records: name to bytes.

        Args:
          counts: where the inputs went.
          source_fingerprint: hex SHA-256 of the inputs.
          shards: as in `publish`.
          summaries: as in `publish`.
          category_counts: as in `publish`.
          vocabularies: category name to its values.
          listings: the checksums of the quarantine's and the duplicates' files.
          older: the generations that stay.
          about_layouts: files about layouts that the build made, name to bytes.
        """
        features = receipt_features(self.labels)
        splits = {}
        for split in self.split_names:
            own = sorted((one for one in shards if one.split == split), key=lambda one: one.number)
            counted = {
                name: tuple(_padded(category_counts[split, name], len(values)).tolist())
                for name, values in vocabularies.items()
            }
            splits[split] = Split(shards=tuple(one.shard for one in own), category_counts=counted)
        summaries = {split: summaries.get(split, RecordSummary()) for split in self.split_names}
        summary = summary_text(summaries).encode()
        generation = Generation(
            version=self.version,
            splits=splits,
            counts=counts,
            build_options=self.build_options,
            source_fingerprint=source_fingerprint,
            written_by=f"tillroll {__version__}",
            files={**listings, summary_name(self.version): checksum(summary)},
        )
        described = {
            schema_name(self.version): schema_text(features, vocabularies).encode(),
            statistics_name(self.version): self._statistics(
                (*older, generation), summaries, vocabularies
            ),
        }
        described |= about_layouts
        manifest = Manifest(
            version=self.version,
            features=features,
            labels=self.labels,
            vocabularies=vocabularies,
            generations=(*older, generation),
            files={name: checksum(data) for name, data in described.items()},
        )
        return manifest, {**described, summary_name(self.version): summary}

    def _about_layouts(
        self,
        older: Manifest | None,
        centroids: str | None = None,
        spellings: Mapping[str, str] | None = None,
        least_certain: Sequence[UncertainReceipt] | None = None,
    ) -> dict[str, bytes]:
        """Makes the files about layouts that builds have made, name to bytes.

        They are those of the version before, with what is new; new centroids begin with the old.
        """
        output = self.staging.output
        about = {}
        if centroids:
            about[centroids_name(self.version)] = files.read(centroids)
        elif older and (found := read_centroids(output, older)):
            about[centroids_name(self.version)] = found.to_bytes()
        merged = read_spellings(output, older) if older else None
        if merged or spellings is not None:
            names = {**(merged.names if merged else {}), **(spellings or {})}
            about[spellings_name(self.version)] = Spellings(names=names).to_json().encode()
        before = read_least_certain(output, older) if older else None
        if before or least_certain is not None:
            listed = (*(before.receipts if before else ()), *(least_certain or ()))
            text = LeastCertain.of(listed).to_json()
            about[least_certain_name(self.version)] = text.encode()
        return about

    def _statistics(
        self,
        generations: Sequence[Generation],
        newest: Summaries,
        vocabularies: Mapping[str, tuple[str, ...]],
    ) -> bytes:
        """Makes the statistics of all records, from the summary of each generation."""
        sizes = {name: len(values) for name, values in vocabularies.items()}
        output = self.staging.output
        older = [read_summary_of(output, generation) for generation in generations[:-1]]
        statistics = {}
        for split in self.split_names:
            parts = [generation.splits[split] for generation in generations]
            counts = Split.union(parts, sizes).category_counts
            summary = RecordSummary.merged(summaries[split] for summaries in (*older, newest))
            statistics[split] = (summary, counts)
        return statistics_bytes(receipt_features(self.labels), statistics, vocabularies)


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


def _excluded_before(base: Base, manifest: Manifest) -> dict[str, bytes]:
    """Makes the list of the records that the version before leaves out: name to bytes."""
    excluded = read_excluded(base.directory, read_manifest(base.directory, base.version))
    if not excluded:
        return {}
    carried = replace(excluded, dataset_digest=manifest.digest)
    return {excluded_name(manifest.version): carried.to_json().encode()}


def _check_deal(
    plan: Plan, shards: Sequence[WrittenShard], category_counts: CategoryCounts
) -> None:
    """Checks that each planned shard was written once, and every record of it counted.

    Raises:
      BuildError: shards or records were lost or repeated.
    """
    for number, split in enumerate(plan.split_names):
        own = [one for one in shards if one.split == split]
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
        for category in (name for of, name in category_counts if of == split):
            counts = category_counts[split, category]
            expected = plan.counts[:, number] if category == LAYOUT else counts
            if counts.sum() != records or (_padded(counts, len(expected)) != expected).any():
                raise BuildError(
                    f"the {category} of {records:,} records of split {split} was not counted once "
                    f"each: {TRY_AGAIN}"
                )


def _padded(counts: IntArray, size: int) -> IntArray:
    # A histogram ends at the last value that a record has; the vocabulary may go on.
    return np.pad(counts, (0, size - len(counts)))
