"""The description of a version: its manifest, and the files about its records and layouts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from beam_jobs.sharding.splits import IntArray
from beam_jobs.storage import files
from beam_jobs.storage.checksums import checksum
from beam_jobs.writing.output import (
    read_centroids,
    read_least_certain,
    read_spellings,
    read_summary_of,
)
from beam_jobs.writing.shards import WrittenShard
from schemas import __version__
from schemas.file_names import (
    centroids_name,
    least_certain_name,
    schema_name,
    spellings_name,
    statistics_name,
    summary_name,
)
from schemas.least_certain import LeastCertain, UncertainReceipt
from schemas.manifest import Counts, FileChecksum, Generation, Manifest, Split
from schemas.receipt import Label, receipt_features
from schemas.spellings import Spellings
from schemas.statistics import RecordSummary
from schemas.summary_file import summary_text
from schemas.tfdv import schema_text, statistics_bytes

Summaries = Mapping[str, RecordSummary]  # split to the statistics of its records
# (split, category) to the records of each value; values at the end that none has may be missing.
CategoryCounts = Mapping[tuple[str, str], IntArray]
FileContents = dict[str, bytes]  # by name
_NOTHING: Mapping[str, bytes] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, eq=False)
class WrittenRecords:
    """Facts of all records that a job has written.

    Attributes:
      shards: all shards of all splits.
      summaries: split to the statistics of its records; none of a split without records.
      category_counts: (split, category) to the records of each value.
      vocabularies: category to its values.
    """

    shards: Sequence[WrittenShard]
    summaries: Summaries
    category_counts: CategoryCounts
    vocabularies: Mapping[str, tuple[str, ...]]

    def split(self, name: str) -> Split:
        """Makes the split of a manifest."""
        own = sorted((one for one in self.shards if one.split == name), key=lambda one: one.number)
        counts = {
            category: tuple(padded(self.category_counts[name, category], len(values)).tolist())
            for category, values in self.vocabularies.items()
        }
        return Split(shards=tuple(one.shard for one in own), category_counts=counts)


@dataclass(frozen=True, kw_only=True)
class Describer:
    """Describes one version of a dataset.

    Attributes:
      output: the dataset directory.
      version: its version.
      labels: the labels that the user declared.
      split_names: the splits in their order.
      build_options: options that shaped the bytes, for the manifest.
    """

    output: str
    version: int
    labels: tuple[Label, ...]
    split_names: tuple[str, ...]
    build_options: Mapping[str, Any]

    def describe(
        self,
        records: WrittenRecords,
        counts: Counts,
        source_fingerprint: str,
        *,
        listings: Mapping[str, FileChecksum],
        older: tuple[Generation, ...] = (),
        about_layouts: Mapping[str, bytes] = _NOTHING,
    ) -> tuple[Manifest, FileContents]:
        """Makes the manifest, and the files about the records.

        Args:
          records: the records that are new.
          counts: where the inputs went.
          source_fingerprint: hex SHA-256 of the inputs.
          listings: the checksums of the quarantine's and the duplicates' files.
          older: the generations that stay.
          about_layouts: what `describe_layouts` made.
        """
        features, vocabularies = receipt_features(self.labels), records.vocabularies
        summaries = {
            split: records.summaries.get(split, RecordSummary()) for split in self.split_names
        }
        summary = summary_text(summaries).encode()
        generation = Generation(
            version=self.version,
            splits={split: records.split(split) for split in self.split_names},
            counts=counts,
            build_options=self.build_options,
            source_fingerprint=source_fingerprint,
            written_by=f"tillroll {__version__}",
            files={**listings, summary_name(self.version): checksum(summary)},
        )
        generations = (*older, generation)
        described = {
            schema_name(self.version): schema_text(features, vocabularies).encode(),
            statistics_name(self.version): self._statistics(generations, summaries, vocabularies),
            **about_layouts,
        }
        manifest = Manifest(
            version=self.version,
            features=features,
            labels=self.labels,
            vocabularies=vocabularies,
            generations=generations,
            files={name: checksum(data) for name, data in described.items()},
        )
        return manifest, {**described, summary_name(self.version): summary}

    def describe_layouts(
        self,
        older: Manifest | None,
        centroids: str | None = None,
        spellings: Mapping[str, str] | None = None,
        least_certain: Sequence[UncertainReceipt] | None = None,
    ) -> FileContents:
        """Makes the files about layouts that builds have made.

        They are those of the version before, with what is new; new centroids begin with the old.

        Args:
          older: manifest of the version before; None if there is none.
          centroids: path of the centroids of the layouts, if they were found.
          spellings: names that were merged, and those in their place; None if none were to be.
          least_certain: the new receipts whose layouts are the least certain; None if layouts were
            not found.
        """
        about = {}
        if centroids:
            about[centroids_name(self.version)] = files.read(centroids)
        elif older and (found := read_centroids(self.output, older)):
            about[centroids_name(self.version)] = found.to_bytes()
        merged = read_spellings(self.output, older) if older else None
        if merged or spellings is not None:
            names = {**(merged.names if merged else {}), **(spellings or {})}
            about[spellings_name(self.version)] = Spellings(names=names).to_json().encode()
        before = read_least_certain(self.output, older) if older else None
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
        older = [read_summary_of(self.output, generation) for generation in generations[:-1]]
        statistics = {}
        for split in self.split_names:
            parts = [generation.splits[split] for generation in generations]
            counts = Split.union(parts, sizes).category_counts
            summary = RecordSummary.merged(summaries[split] for summaries in (*older, newest))
            statistics[split] = (summary, counts)
        return statistics_bytes(receipt_features(self.labels), statistics, vocabularies)


def padded(counts: IntArray, size: int) -> IntArray:
    """Adds zeros to a histogram, which ends at the last value that a record has."""
    return np.pad(counts, (0, size - len(counts)))
