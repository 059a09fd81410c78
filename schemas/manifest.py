"""`manifest.json`: everything a reader needs beside the shards and their indexes."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from schemas import versioned_json
from schemas.receipt import Feature, Label

FORMAT = "tillroll-dataset"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
SCHEMA = "schema.pbtxt"
STATISTICS = "statistics.pb"
COMPLETED = "COMPLETED"
EXCLUDED = "excluded.json"


def shard_name(split: str, number: int, count: int) -> str:
    """File name of a shard, after TensorFlow Datasets' template."""
    return f"receipts-{split}.tfrecord-{number:05d}-of-{count:05d}"


def index_name(split: str, number: int, count: int) -> str:
    """File name of the index of a shard."""
    return f"receipts-{split}.index-{number:05d}-of-{count:05d}"


def is_dataset_file(name: str) -> bool:
    """Whether a path relative to a dataset directory is one that tillroll writes."""
    return name in (MANIFEST, SCHEMA, STATISTICS, COMPLETED, EXCLUDED) or bool(
        re.fullmatch(
            r"receipts-[a-z0-9_]+\.(tfrecord|index)-\d{5,}-of-\d{5,}"
            r"|quarantine/rejected\.(tfrecord|jsonl)-\d{5,}-of-\d{5,}"
            r"|duplicates/duplicates\.jsonl-\d{5,}-of-\d{5,}",
            name,
        )
    )


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One shard and its index; sizes in bytes, checksums CRC32C of the whole file."""

    name: str
    records: int
    size_bytes: int
    crc32c: int
    index_name: str
    index_crc32c: int


@dataclass(frozen=True, kw_only=True)
class Split:
    """One split: its shards in order, and how many records each category value has.

    `category_counts[category][i]` belongs to the i-th name of the manifest's vocabulary.
    """

    shards: tuple[Shard, ...]
    category_counts: Mapping[str, tuple[int, ...]]

    @property
    def records(self) -> int:
        return sum(shard.records for shard in self.shards)


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
    """

    features: tuple[Feature, ...]
    labels: tuple[Label, ...]
    vocabularies: Mapping[str, tuple[str, ...]]
    splits: Mapping[str, Split]
    counts: Counts
    build_options: Mapping[str, Any] = field(default_factory=dict)
    source_fingerprint: str
    written_by: str

    def __post_init__(self) -> None:
        sizes = {name: len(values) for name, values in self.vocabularies.items()}
        for name, split in self.splits.items():
            counted = {category: len(counts) for category, counts in split.category_counts.items()}
            if counted != sizes:
                raise ValueError(
                    f"split {name!r} counts values of the categories {counted}, the vocabularies "
                    f"hold {sizes}: build the dataset again"
                )

    @property
    def digest(self) -> str:
        """Hex SHA-256 that two directories share exactly if their records are the same."""
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
          ValueError: the text is no manifest, or of a newer format version.
        """
        values = versioned_json.from_text(
            text,
            format_name=FORMAT,
            newest_version=FORMAT_VERSION,
            repair="build the dataset again",
        )
        try:
            return cls(
                features=tuple(Feature(**each) for each in values.pop("features")),
                labels=tuple(Label(**each) for each in values.pop("labels")),
                vocabularies={
                    name: tuple(names) for name, names in values.pop("vocabularies").items()
                },
                splits={name: _split(each) for name, each in values.pop("splits").items()},
                counts=Counts(**values.pop("counts")),
                **values,
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"damaged {FORMAT} file: {error!r}; build the dataset again"
            ) from error


def _split(values: Mapping[str, Any]) -> Split:
    return Split(
        shards=tuple(Shard(**each) for each in values["shards"]),
        category_counts={name: tuple(counts) for name, counts in values["category_counts"].items()},
    )


def dealt_histogram(layout_counts: Sequence[int], shards: int) -> npt.NDArray[np.int64]:
    """Records of each layout in each shard, as the deal lays them; int64 [shards, layouts].

    Records are numbered 0…N-1 layout by layout and record i goes to shard i mod shards, so the
    counts follow from the layouts' sizes alone and need not be stored.
    """
    ends = np.cumsum(np.asarray(layout_counts, np.int64))
    starts = ends - np.asarray(layout_counts, np.int64)
    shard = np.arange(shards, dtype=np.int64)[:, None]
    # Numbers below x that are congruent to k: (x - k + shards - 1) // shards.
    return np.asarray(
        (ends - shard + shards - 1) // shards - (starts - shard + shards - 1) // shards
    )
