"""`manifest.json`: everything a reader of one version needs beside the shards and their indexes.

The shards of a version come in generations. A build makes the first; what is appended is dealt by
itself, to shards of its own, and is the next. Old shards stay, so a version shares them with the
versions before it.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from schemas import versioned_json
from schemas.file_names import (
    dali_index_name,
    excluded_name,
    index_name,
    is_dataset_file,
    is_shard_file,
    is_summary_file,
    lookup_name,
    manifest_name,
    shard_name,
    shard_summary_name,
)
from schemas.receipt import LAYOUT, Feature, Label, categories, receipt_features
from schemas.typed_json import parse_as

FORMAT = "tillroll-dataset"
FORMAT_VERSION = 2
# Names in `build_options["image"]` of the options that shape stored images; the others are limits.
IMAGE_FORM = (
    "encoding",
    "max_side",
    "quality",
    "raw_size",
    "fit",
    "channels",
    "full_decode",
    "restart_rows",
)
# Values of the options that datasets and models of older versions do not record.
_OLDER_IMAGE_FORM = {"full_decode": False, "restart_rows": False}


@dataclass(frozen=True, kw_only=True)
class FileChecksum:
    """Size of a whole file in bytes, and its CRC32C."""

    size_bytes: int
    crc32c: int

    def __post_init__(self) -> None:
        _check_ranges(counts=[self.size_bytes], checksums=[self.crc32c])


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One shard and the files beside it; sizes in bytes, checksums CRC32C of the whole file.

    `forgotten` are the layout ids, ascending, of records that it was dealt and has no more, as
    `beam_jobs.forget` has written it anew without them.
    """

    name: str
    records: int
    size_bytes: int
    crc32c: int
    index_crc32c: int
    lookup_crc32c: int
    summary_crc32c: int
    dali_index_crc32c: int
    forgotten: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check_ranges(
            counts=(self.records, self.size_bytes, *self.forgotten),
            checksums=(
                self.crc32c,
                self.index_crc32c,
                self.lookup_crc32c,
                self.summary_crc32c,
                self.dali_index_crc32c,
            ),
        )

    @property
    def index_name(self) -> str:
        return index_name(self.name)

    @property
    def lookup_name(self) -> str:
        return lookup_name(self.name)

    @property
    def summary_name(self) -> str:
        return shard_summary_name(self.name)

    @property
    def dali_index_name(self) -> str:
        return dali_index_name(self.name)

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the shard and of the files beside it."""
        return (
            self.name,
            self.index_name,
            self.lookup_name,
            self.summary_name,
            self.dali_index_name,
        )


@dataclass(frozen=True, kw_only=True)
class Split:
    """One split: its shards in order, and how many records each category value has.

    `category_counts[category][i]` belongs to the i-th name of the manifest's vocabulary. That of an
    older generation ends where the vocabulary ended then.
    """

    shards: tuple[Shard, ...]
    category_counts: Mapping[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        for counts in self.category_counts.values():
            _check_ranges(counts=counts)
        layouts = len(self.category_counts.get(LAYOUT, ()))
        for shard in self.shards:
            if beyond := [layout for layout in shard.forgotten if layout >= layouts]:
                raise ValueError(
                    f"{shard.name} has forgotten records of layout {beyond[0]}, there are {layouts}"
                )

    @property
    def records(self) -> int:
        return sum(shard.records for shard in self.shards)

    @cached_property
    def layout_counts(self) -> npt.NDArray[np.int64]:
        """Records of each layout, int64 [layouts]; as an array made once for all shards."""
        return np.array(self.category_counts[LAYOUT], np.int64)

    @cached_property
    def dealt_layout_counts(self) -> npt.NDArray[np.int64]:
        """Records of each layout that were dealt, int64 [layouts]: with those forgotten since."""
        forgotten = [layout for shard in self.shards for layout in shard.forgotten]
        counts = np.bincount(np.array(forgotten, np.int64), minlength=len(self.layout_counts))
        return self.layout_counts + counts

    @classmethod
    def union(cls, parts: Sequence[Self], sizes: Mapping[str, int]) -> Self:
        """Joins a split's parts in several generations; `sizes` are those of the vocabularies."""
        counts = {name: np.zeros(size, np.int64) for name, size in sizes.items()}
        for part in parts:
            for name, own in part.category_counts.items():
                counts[name][: len(own)] += np.array(own, np.int64)
        return cls(
            shards=tuple(shard for part in parts for shard in part.shards),
            category_counts={name: tuple(total.tolist()) for name, total in counts.items()},
        )


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Conservation: inputs = written + duplicates + known + the sum of quarantined + forgotten.

    `quarantined` is by reason code. `known` are inputs that the dataset had already when the others
    were appended. `forgotten` were among the others, until `beam_jobs.forget` was told of them.
    `near_duplicates` is the number of pairs in their list; an input that was dropped for another
    one is among the duplicates.
    """

    inputs: int
    written: int
    duplicates: int
    quarantined: Mapping[str, int]
    duplicates_with_other_labels: int = 0
    near_duplicates: int = 0
    clipped_boxes: int = 0
    known: int = 0
    forgotten: int = 0

    def __post_init__(self) -> None:
        _check_ranges(
            counts=(
                self.inputs,
                self.written,
                self.duplicates,
                self.duplicates_with_other_labels,
                self.near_duplicates,
                self.clipped_boxes,
                self.known,
                self.forgotten,
                *self.quarantined.values(),
            )
        )
        quarantined = sum(self.quarantined.values())
        accounted = self.written + self.duplicates + self.known + quarantined + self.forgotten
        if self.inputs != accounted:
            raise ValueError(
                f"records were lost or made up: {self.inputs} inputs, but {self.written} written "
                f"+ {self.duplicates} duplicates + {self.known} known + "
                f"{quarantined} quarantined + {self.forgotten} forgotten = {accounted}; do not use "
                "this dataset"
            )

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """Adds up the counts of several generations."""
        parts = list(parts)
        quarantined: Counter[str] = Counter()
        for part in parts:
            quarantined.update(part.quarantined)
        return cls(
            inputs=sum(part.inputs for part in parts),
            written=sum(part.written for part in parts),
            duplicates=sum(part.duplicates for part in parts),
            quarantined=dict(quarantined),
            duplicates_with_other_labels=sum(part.duplicates_with_other_labels for part in parts),
            near_duplicates=sum(part.near_duplicates for part in parts),
            clipped_boxes=sum(part.clipped_boxes for part in parts),
            known=sum(part.known for part in parts),
            forgotten=sum(part.forgotten for part in parts),
        )


@dataclass(frozen=True, kw_only=True)
class Generation:
    """Shards that were dealt together, and what is known of the inputs they were made from.

    Attributes:
      version: the version that added the generation.
      splits: split name to its shards of this generation.
      counts: where every input went.
      build_options: the options that shaped the bytes.
      source_fingerprint: hex SHA-256 over ids and the XXH3 hashes of source bytes.
      written_by: distribution and version that wrote the shards.
      files: path relative to the directory to checksum, of the summary of its records and of the
        listings of the quarantine and of duplicates.
    """

    version: int
    splits: Mapping[str, Split]
    counts: Counts
    build_options: Mapping[str, Any] = field(default_factory=dict)
    source_fingerprint: str
    written_by: str
    files: Mapping[str, FileChecksum] = field(default_factory=dict)

    @property
    def summary_name(self) -> str:
        """Path of the summary of its records, relative to the directory.

        Raises:
          ValueError: the generation names none.
        """
        names = [name for name in self.files if is_summary_file(name)]
        if len(names) != 1:
            raise ValueError(
                f"generation {self.version} names {len(names)} summaries of its records, not one"
            )
        return names[0]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The manifest of one version.

    Attributes:
      version: the version.
      features: features of a record.
      labels: the labels that the user declared.
      vocabularies: category name to its values, the position of a value being its id; "layout" is
        always there. A later version adds values at the end.
      generations: the generations, the oldest first.
      files: path relative to the directory to checksum, of the version's own files but the manifest
        itself and excluded.json, which is written later.
    """

    version: int
    features: tuple[Feature, ...]
    labels: tuple[Label, ...]
    vocabularies: Mapping[str, tuple[str, ...]]
    generations: tuple[Generation, ...]
    files: Mapping[str, FileChecksum] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.generations:
            raise ValueError("the manifest has no generation")
        sizes = {name: len(values) for name, values in self.vocabularies.items()}
        names = self.generations[0].splits.keys()
        for generation in self.generations:
            if generation.splits.keys() != names:
                raise ValueError(
                    f"generation {generation.version} has the splits {list(generation.splits)}, "
                    f"must have {list(names)}"
                )
            # The newest one counts the values of the whole vocabulary.
            exact = generation is self.generations[-1]
            for name, split in generation.splits.items():
                counted = {each: len(counts) for each, counts in split.category_counts.items()}
                fits = counted.keys() == sizes.keys() and all(
                    counted[each] == sizes[each] if exact else counted[each] <= sizes[each]
                    for each in counted
                )
                if not fits:
                    raise ValueError(
                        f"split {name!r} counts values of the categories {counted}, the "
                        f"vocabularies hold {sizes}"
                    )

    @cached_property
    def splits(self) -> Mapping[str, Split]:
        """Split name to the split, with the shards of all generations."""
        sizes = {name: len(values) for name, values in self.vocabularies.items()}
        return {
            name: Split.union([one.splits[name] for one in self.generations], sizes)
            for name in self.generations[0].splits
        }

    @cached_property
    def shards(self) -> Mapping[str, Shard]:
        """File name to the shard, of all splits."""
        return {shard.name: shard for split in self.splits.values() for shard in split.shards}

    @property
    def counts(self) -> Counts:
        """Sums of the counts of all generations."""
        return Counts.total(generation.counts for generation in self.generations)

    @property
    def build_options(self) -> Mapping[str, Any]:
        """The options that shaped the bytes, as the newest generation has them."""
        return self.generations[-1].build_options

    @property
    def checksums(self) -> Mapping[str, FileChecksum]:
        """Path to checksum of the files of the version and of its generations."""
        listings = [generation.files for generation in self.generations]
        return {name: sums[name] for sums in (*listings, self.files) for name in sums}

    @property
    def file_names(self) -> frozenset[str]:
        """Paths of all files that the version may have, relative to the directory."""
        shards = [
            name for split in self.splits.values() for one in split.shards for name in one.files
        ]
        own = (manifest_name(self.version), excluded_name(self.version))
        return frozenset([*own, *self.checksums, *shards])

    @property
    def digest(self) -> str:
        """Hex SHA-256 that two versions share exactly if their records are the same."""
        # Not of the whole manifest, which also names the version that wrote it and the source.
        shards = {
            name: [(shard.name, shard.crc32c, shard.index_crc32c) for shard in split.shards]
            for name, split in self.splits.items()
        }
        return hashlib.sha256(json.dumps(shards, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        """The file's text; equal manifests give equal text."""
        return versioned_json.to_text(asdict(self), format_name=FORMAT, version=FORMAT_VERSION)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Reads a manifest of this format version.

        Raises:
          ValueError: the text is not a manifest, or is of a newer format version.
        """
        values = versioned_json.from_text(
            text,
            format_name=FORMAT,
            newest_version=FORMAT_VERSION,
            repair="build the dataset again",
        )
        try:
            manifest = parse_as(cls, values, "manifest")
            manifest._check_names()
            manifest._check_labels()
        except ValueError as error:
            raise ValueError(f"damaged {FORMAT} file: {error}; build the dataset again") from error
        return manifest

    def _check_names(self) -> None:
        if not self.splits:
            raise ValueError("the manifest has no split")
        # A file name could lead out of the directory.
        for name in self.checksums:
            if not is_dataset_file(name):
                raise ValueError(f"{name!r} is not the name of a file of a dataset")
        shards = [shard.name for split in self.splits.values() for shard in split.shards]
        # The name of a split is checked by that of a shard.
        for name in [*shards, *(shard_name(split, 0) for split in self.splits)]:
            if not is_shard_file(name):
                raise ValueError(f"{name!r} is not the name of a shard")
        if len(set(shards)) != len(shards):
            raise ValueError("the manifest names a shard more than once")

    def _check_labels(self) -> None:
        if self.vocabularies.keys() != set(categories(self.labels)):
            raise ValueError(
                f"the manifest has vocabularies of {sorted(self.vocabularies)}, its labels need "
                f"{sorted(categories(self.labels))}"
            )
        names = {(feature.name, feature.dtype, feature.ragged) for feature in self.features}
        if names != {
            (feature.name, feature.dtype, feature.ragged)
            for feature in receipt_features(self.labels)
        }:
            raise ValueError("the manifest's features are not those of its labels")


def image_form(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that shape stored images, as `ImageOptions` takes them.

    Args:
      recorded: the options of images that a dataset or a model records, of any version.
    """
    form = _OLDER_IMAGE_FORM | {name: recorded[name] for name in IMAGE_FORM if name in recorded}
    if "raw_size" in form:
        form["raw_size"] = tuple(form["raw_size"])  # a list in JSON
    return form


def _check_ranges(*, counts: Iterable[int] = (), checksums: Iterable[int] = ()) -> None:
    # 63 bits: readers hold counts in int64.
    for numbers, bits in ((counts, 63), (checksums, 32)):
        for number in numbers:
            if not 0 <= number < 1 << bits:
                raise ValueError(f"{number} is not a number from 0 to 2**{bits} - 1")


def dealt_histogram(
    layout_counts: Sequence[int] | npt.NDArray[np.int64], *, shards: int, shard: int
) -> npt.NDArray[np.int64]:
    """Counts the records of each layout in one shard of a split, from the deal; int64 [layouts].

    Records are numbered 0…N-1 layout by layout and record i goes to shard i mod shards, so the
    counts follow from the layouts' sizes alone and need not be stored. With layouts of 4 and 2
    records and 3 shards, shard 0 gets the records 0 and 3 and shard 1 the records 1 and 4: they
    hold [2, 0] and [1, 1].
    """
    counts = np.asarray(layout_counts, np.int64)
    ends = np.cumsum(counts)
    # Of the numbers below x, (x - k + shards - 1) // shards go to shard k: of those below 6, 2 go
    # to shard 1 of 3, the numbers 1 and 4.
    offset = shards - 1 - shard
    return np.asarray((ends + offset) // shards - (ends - counts + offset) // shards)
