"""`manifest.json`: everything a reader needs beside the shards and their indexes."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from schemas import versioned_json
from schemas.receipt import LAYOUT, Feature, Label, categories, receipt_features
from schemas.typed_json import parse_as

FORMAT = "tillroll-dataset"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
SCHEMA = "schema.pbtxt"
STATISTICS = "statistics.pb"
COMPLETED = "COMPLETED"
EXCLUDED = "excluded.json"
# Numbers are padded to five digits, and have more from 100,000 shards on.
_INDEX_FILE = re.compile(r"receipts-[a-z0-9_]+\.index-\d{5,}-of-\d{5,}")
_NUMBERED_FILE = re.compile(
    r"receipts-[a-z0-9_]+\.(tfrecord|index)-\d{5,}-of-\d{5,}"
    r"|quarantine/rejected\.(tfrecord|jsonl)-\d{5,}-of-\d{5,}"
    r"|duplicates/duplicates\.jsonl-\d{5,}-of-\d{5,}"
)


def shard_name(split: str, number: int, count: int) -> str:
    """File name of a shard, after TensorFlow Datasets' template."""
    return f"receipts-{split}.tfrecord-{number:05d}-of-{count:05d}"


def index_name(split: str, number: int, count: int) -> str:
    """File name of the index of a shard."""
    return f"receipts-{split}.index-{number:05d}-of-{count:05d}"


def is_index_file(name: str) -> bool:
    """Returns whether a file name is that of the index of a shard."""
    return _INDEX_FILE.fullmatch(name) is not None


def is_dataset_file(name: str) -> bool:
    """Returns whether tillroll writes a file of this path, relative to a dataset directory."""
    return bool(
        _NUMBERED_FILE.fullmatch(name)
        or name in (MANIFEST, SCHEMA, STATISTICS, COMPLETED, EXCLUDED)
    )


def completed_text(manifest: bytes) -> str:
    """Text of COMPLETED: the hex SHA-256 of manifest.json, which has the other files' checksums."""
    return hashlib.sha256(manifest).hexdigest() + "\n"


def check_completed(completed: bytes, manifest: bytes) -> None:
    """Checks that the bytes of COMPLETED belong to those of manifest.json.

    Raises:
      ValueError: they don't.
    """
    if completed != completed_text(manifest).encode():
        raise ValueError(
            "does not match COMPLETED: one of the two is damaged, or another version of tillroll "
            "wrote them; restore both from a copy, or build the dataset again"
        )


@dataclass(frozen=True, kw_only=True)
class FileChecksum:
    """Size of a whole file in bytes, and its CRC32C."""

    size_bytes: int
    crc32c: int

    def __post_init__(self) -> None:
        _check_ranges(counts=[self.size_bytes], checksums=[self.crc32c])


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One shard and its index; sizes in bytes, checksums CRC32C of the whole file."""

    name: str
    records: int
    size_bytes: int
    crc32c: int
    index_name: str
    index_crc32c: int

    def __post_init__(self) -> None:
        _check_ranges(
            counts=(self.records, self.size_bytes), checksums=(self.crc32c, self.index_crc32c)
        )


@dataclass(frozen=True, kw_only=True)
class Split:
    """One split: its shards in order, and how many records each category value has.

    `category_counts[category][i]` belongs to the i-th name of the manifest's vocabulary.
    """

    shards: tuple[Shard, ...]
    category_counts: Mapping[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        for counts in self.category_counts.values():
            _check_ranges(counts=counts)

    @property
    def records(self) -> int:
        return sum(shard.records for shard in self.shards)

    @cached_property
    def layout_counts(self) -> npt.NDArray[np.int64]:
        """Records of each layout, int64 [layouts]; as an array made once for all shards."""
        return np.array(self.category_counts[LAYOUT], np.int64)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Conservation: inputs = written + duplicates + the sum of quarantined (by reason code)."""

    inputs: int
    written: int
    duplicates: int
    quarantined: Mapping[str, int]
    duplicates_with_other_labels: int = 0
    clipped_boxes: int = 0

    def __post_init__(self) -> None:
        _check_ranges(
            counts=(
                self.inputs,
                self.written,
                self.duplicates,
                self.duplicates_with_other_labels,
                self.clipped_boxes,
                *self.quarantined.values(),
            )
        )
        accounted = self.written + self.duplicates + sum(self.quarantined.values())
        if self.inputs != accounted:
            raise ValueError(
                f"records were lost or made up: {self.inputs} inputs, but {self.written} written "
                f"+ {self.duplicates} duplicates + {sum(self.quarantined.values())} quarantined "
                f"= {accounted}; do not use this dataset"
            )


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The whole manifest.

    Attributes:
      features: features of a record.
      labels: the labels that the user declared.
      vocabularies: category name to its values, sorted; "layout" is always there.
      splits: split name to split.
      counts: where every input went.
      build_options: the options that shaped the bytes.
      source_fingerprint: hex SHA-256 over ids and the XXH3 hashes of source bytes.
      written_by: distribution and version that wrote the directory.
      files: path relative to the directory to checksum, of every file that is not a shard, an
        index, the manifest itself, COMPLETED or excluded.json, which is written later.
    """

    features: tuple[Feature, ...]
    labels: tuple[Label, ...]
    vocabularies: Mapping[str, tuple[str, ...]]
    splits: Mapping[str, Split]
    counts: Counts
    build_options: Mapping[str, Any] = field(default_factory=dict)
    source_fingerprint: str
    written_by: str
    files: Mapping[str, FileChecksum] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = {name: len(values) for name, values in self.vocabularies.items()}
        for name, split in self.splits.items():
            counted = {category: len(counts) for category, counts in split.category_counts.items()}
            if counted != sizes:
                raise ValueError(
                    f"split {name!r} counts values of the categories {counted}, the vocabularies "
                    f"hold {sizes}"
                )

    @property
    def digest(self) -> str:
        """Hex SHA-256 that two directories share exactly if their records are the same."""
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
        """Reads a manifest of this format version or an older one.

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
        # The name of a split is checked by that of a shard: a file name could lead out of the
        # directory.
        names = [*self.files, *(shard_name(split, 0, 1) for split in self.splits)]
        for split in self.splits.values():
            names += [name for shard in split.shards for name in (shard.name, shard.index_name)]
        for name in names:
            if not is_dataset_file(name):
                raise ValueError(f"{name!r} is not the name of a file of a dataset")

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
