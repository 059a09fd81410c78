"""Publish: turn the staged files into the dataset directory, COMPLETED last."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from beam_jobs import files
from beam_jobs.errors import TRY_AGAIN, BuildError
from beam_jobs.output import begun_name, dataset_files, delete_staging
from beam_jobs.prepared import PreparedChunk
from beam_jobs.write import WrittenShard
from schemas import __version__
from schemas.manifest import (
    COMPLETED,
    MANIFEST,
    SCHEMA,
    STATISTICS,
    Counts,
    Manifest,
    Split,
    dealt_histogram,
)
from schemas.receipt import LAYOUT, Label, receipt_features
from schemas.statistics import RecordSummary
from schemas.tfmd import schema_text, statistics_bytes


@dataclass(frozen=True, kw_only=True)
class ChunkSummary:
    """What the manifest needs to know of a chunk."""

    number: int
    inputs: int
    quarantined: Mapping[str, int]
    clipped_boxes: int
    fingerprint: str

    @classmethod
    def of(cls, chunk: PreparedChunk) -> Self:
        """Summary of a prepared chunk."""
        return cls(
            number=chunk.number,
            inputs=chunk.inputs,
            quarantined=dict(Counter(each.reason for each in chunk.rejected)),
            clipped_boxes=chunk.clipped_boxes,
            fingerprint=chunk.fingerprint,
        )


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """Publishes what lies in `staged` as `output`.

    Attributes:
      output: the dataset directory.
      staging: the whole staging directory, deleted at the end.
      staged: the folder in it that holds the finished files.
      labels: the labels that the user declared.
      split_names: the splits in their order.
      build_options: options that shaped the bytes, for the manifest.
      request: identifies what was asked for, see `BuildOptions.request`.
    """

    output: str
    staging: str
    staged: str
    labels: tuple[Label, ...]
    split_names: tuple[str, ...]
    build_options: Mapping[str, Any]
    request: str

    def publish(
        self,
        inputs: int,
        chunks: Sequence[ChunkSummary],
        shards: Sequence[WrittenShard],
        duplicates: tuple[int, int],
        listings: Sequence[str],
        vocabularies: Mapping[str, Sequence[str]],
    ) -> Manifest:
        """Checks the counts, writes the manifest and moves everything into place.

        Args:
          inputs: rows that the source gave.
          chunks: one a prepared chunk.
          shards: all shards of all splits.
          duplicates: how many there are, and how many of them differ in their labels.
          listings: the quarantine's and the duplicates' files.
          vocabularies: category name to its values.

        Raises:
          BuildError: records were lost.
          ValueError: a shard does not hold what it was dealt.
        """
        if (known := sum(chunk.inputs for chunk in chunks)) != inputs:
            raise BuildError(f"the source gave {inputs} rows, {known} were prepared: {TRY_AGAIN}")
        manifest, statistics = self._describe(chunks, shards, duplicates, vocabularies)
        _check_deal(shards, manifest)
        self._write(MANIFEST, manifest.to_json().encode())
        self._write(SCHEMA, schema_text(manifest.features, vocabularies).encode())
        self._write(STATISTICS, statistics)
        names = [MANIFEST, SCHEMA, STATISTICS, *listings]
        shard_names = [each.shard.name for each in shards]
        names += shard_names + [each.shard.index_name for each in shards]
        self._move_into_place(names, shard_names, manifest.digest)
        delete_staging(self.staging)
        return manifest

    def _move_into_place(self, names: list[str], shard_names: list[str], digest: str) -> None:
        """Replaces the old directory; may be killed and repeated at any point."""
        completed = files.join(self.output, COMPLETED)
        begun = files.join(self.staging, begun_name(digest))
        staged = set(files.list_below(self.staged))
        if not files.exists(begun):
            # Only a whole new dataset may harm an old one.
            if missing := [n for n in shard_names if files.join(self.staged, n) not in staged]:
                if files.exists(completed) and files.read(completed).decode().strip() == digest:
                    return  # a retry of a publication that succeeded
                raise ValueError(f"{missing[0]} is not in {self.staged}: run the build again")
            if files.exists(completed):
                files.delete([completed])
            new = {files.join(self.output, name) for name in names}
            # A runner may publish twice at once: what the other has just moved in stays.
            if old := [path for path in dataset_files(self.output) if path not in new]:
                files.delete(old)
            files.write(begun, self.request.encode())
        pairs = [(files.join(self.staged, name), files.join(self.output, name)) for name in names]
        files.move([(source, target) for source, target in pairs if source in staged])
        found = set(dataset_files(self.output))
        if lost := [target for _, target in pairs if target not in found]:
            raise ValueError(f"{lost[0]} was not moved into place: run the build again")
        whole = files.join(self.staging, COMPLETED)
        files.write(whole, digest.encode() + b"\n")
        files.move([(whole, completed)])

    def _describe(
        self,
        chunks: Sequence[ChunkSummary],
        shards: Sequence[WrittenShard],
        duplicates: tuple[int, int],
        vocabularies: Mapping[str, Sequence[str]],
    ) -> tuple[Manifest, bytes]:
        features = receipt_features(self.labels)
        splits, statistics = {}, {}
        for split in self.split_names:
            own = sorted((each for each in shards if each.split == split), key=lambda e: e.number)
            counts = {
                name: np.zeros(len(values), np.int64) for name, values in vocabularies.items()
            }
            for each in own:
                for name, values in each.category_counts.items():
                    counts[name] += _dense(values, len(counts[name]))
            category_counts = {name: tuple(array.tolist()) for name, array in counts.items()}
            splits[split] = Split(
                shards=tuple(each.shard for each in own), category_counts=category_counts
            )
            summary = RecordSummary.merged(each.summary for each in own)
            statistics[split] = (summary, category_counts)
        quarantined: Counter[str] = Counter()
        fingerprint = hashlib.sha256()
        for chunk in sorted(chunks, key=lambda chunk: chunk.number):
            quarantined.update(chunk.quarantined)
            fingerprint.update(bytes.fromhex(chunk.fingerprint))
        manifest = Manifest(
            features=features,
            labels=self.labels,
            vocabularies={name: tuple(values) for name, values in vocabularies.items()},
            splits=splits,
            counts=Counts(
                inputs=sum(chunk.inputs for chunk in chunks),
                written=sum(split.records for split in splits.values()),
                duplicates=duplicates[0],
                duplicates_with_other_labels=duplicates[1],
                quarantined=dict(quarantined),
                clipped_boxes=sum(chunk.clipped_boxes for chunk in chunks),
            ),
            build_options=self.build_options,
            source_fingerprint=fingerprint.hexdigest(),
            written_by=f"tillroll {__version__}",
        )
        return manifest, statistics_bytes(features, statistics, vocabularies)

    def _write(self, name: str, data: bytes) -> None:
        files.write(files.join(self.staged, name), data)


def _check_deal(shards: Sequence[WrittenShard], manifest: Manifest) -> None:
    for name, split in manifest.splits.items():
        expected = dealt_histogram(split.category_counts[LAYOUT], len(split.shards))
        for each in shards:
            if each.split == name:
                found = _dense(each.category_counts[LAYOUT], expected.shape[1])
                if (found != expected[each.number]).any():
                    raise ValueError(f"{each.shard.name} does not hold the layouts it was dealt")


def _dense(counts: Mapping[int, int], size: int) -> npt.NDArray[np.int64]:
    dense = np.zeros(size, np.int64)
    for code, count in counts.items():
        dense[code] = count
    return dense
