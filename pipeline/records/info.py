"""Descriptions of dataset directories, read from their manifests."""

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import google_crc32c

from pipeline.option_checks import check_integer
from pipeline.records.files import is_remote, read_file, reason, why_missing
from schemas.excluded import Excluded
from schemas.file_names import (
    COMPLETED,
    excluded_name,
    least_certain_name,
    manifest_name,
    statistics_name,
)
from schemas.index import RecordIndex
from schemas.least_certain import LeastCertain
from schemas.manifest import Manifest, Shard, Split
from schemas.receipt import Feature
from schemas.tfdv import value_counts
from schemas.versions import Versions

T = TypeVar("T")
DATA_DIR_VARIABLE = "TILLROLL_DATA_DIR"
VERIFY = "python -m beam_jobs.verify tells what is wrong with the directory"
NEWEST = (
    "make the dataset again to read its newest version, with which pipeline.train goes on by "
    "--other-data"
)
GONE = (
    "if it was moved, name its new place; if it is being built anew, make the dataset again when "
    "the build is complete"
)


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """A version of a finished dataset directory.

    Attributes:
      data_dir: the directory; an absolute path if it is local.
      manifest: the manifest of the version.
      manifest_sha256: hex SHA-256 of the manifest's file, by which COMPLETED names the version.
      excluded: damaged records that are left out.
    """

    data_dir: str
    manifest: Manifest
    manifest_sha256: str
    excluded: Excluded

    @property
    def version(self) -> int:
        """Number of the version, from 1."""
        return self.manifest.version

    @property
    def layouts(self) -> tuple[str, ...]:
        """Names of the layouts; position is layout id."""
        return self.manifest.vocabularies["layout"]

    @property
    def features(self) -> tuple[Feature, ...]:
        """Features of a record."""
        return self.manifest.features

    @property
    def digest(self) -> str:
        """Hex SHA-256, equal for two directories if and only if their records are the same."""
        return self.manifest.digest

    def split(self, name: str) -> Split:
        """Returns the description of a split.

        Raises:
          ValueError: there is no such split.
        """
        if name not in self.manifest.splits:
            raise ValueError(
                f"{self.data_dir} has no split {name!r}: choose one of "
                f"{', '.join(self.manifest.splits)}"
            )
        return self.manifest.splits[name]

    def records(self, split: str) -> int:
        """Returns the number of records of a split, without those that are left out."""
        return sum(self._shard_records(split))

    def vocabulary(self, category: str) -> tuple[str, ...]:
        """Returns the values of a category; position is id.

        Raises:
          ValueError: there is no such category.
        """
        if category not in self.manifest.vocabularies:
            stored = {feature.name for feature in self.features}
            if f"receipt/{category}" in stored:
                repair = "name it in InputConfig.features, which gives its values"
            else:
                repair = f"build it with --label {category}:category"
            raise ValueError(
                f"{category!r} is not a category of {self.data_dir}: choose one of "
                f"{', '.join(self.manifest.vocabularies)}, or {repair}"
            )
        return self.manifest.vocabularies[category]

    def record_index(self, split: str) -> RecordIndex:
        """Reads the index of all records of a split, shard by shard, with those left out."""
        shards = self.split(split).shards
        return RecordIndex.concatenate([self.shard_index(shard) for shard in shards])

    def positions(self, split: str, ids: Collection[str]) -> dict[str, int]:
        """Finds records by their ids: id to position in the split, as in `tillroll.Records`.

        Ids that the split does not have are missing, and so are records that are left out.
        """
        found: dict[str, int] = {}
        first = 0
        for shard in self.split(split).shards:
            index = self.shard_index(shard)
            left_out = set(self.excluded.positions(shard.name))
            kept = (id_ for row, id_ in enumerate(index.ids()) if row not in left_out)
            found |= {id_: first + number for number, id_ in enumerate(kept) if id_ in ids}
            first += len(index) - len(left_out)
        return found

    def least_certain(self) -> LeastCertain | None:
        """Reads the receipts whose layouts, as the build found them, are the least certain.

        Returns:
          None if the version has no such list: its layouts were given, or it is an older one.

        Raises:
          ValueError: the list can't be read, or is not the one that was written.
        """
        name = least_certain_name(self.version)
        if name not in self.manifest.files:
            return None

        return self._read_checked(name, self.manifest.files[name].crc32c, LeastCertain.from_json)

    def values(self, split: str, feature: str) -> int:
        """Returns the number of values of a stored feature in a split, from the statistics.

        Raises:
          ValueError: there is no such split or feature, or the statistics can't be read.
        """
        self.split(split)
        path = os.path.join(self.data_dir, statistics_name(self.version))
        try:
            counts = value_counts(read_file(path))
            return counts[split][feature]
        except FileNotFoundError as error:
            raise ValueError(f"{path} is missing: build the dataset again") from error
        except ValueError as error:
            raise ValueError(f"{path} can't be read: {error}; build the dataset again") from error
        except KeyError as error:
            raise ValueError(
                f"{path} says nothing about {error}: build the dataset again"
            ) from error

    def steps_per_epoch(self, split: str, global_batch_size: int, *, block_length: int = 1) -> int:
        """Returns the number of full global batches in an epoch of training, at least 1.

        Args:
          split: the split.
          global_batch_size: records of a step, over all replicas.
          block_length: as in `pipeline.config.Reading`.

        Raises:
          ValueError: a batch does not consist of whole blocks.
        """
        if global_batch_size < 1 or global_batch_size % block_length:
            raise ValueError(
                f"global_batch_size must be a positive multiple of block_length {block_length}, "
                f"got {global_batch_size}"
            )
        blocks = sum(records // block_length for records in self._shard_records(split))
        return max(1, blocks // (global_batch_size // block_length))

    def evaluation_steps(self, split: str, global_batch_size: int) -> int:
        """Returns the number of global batches that hold each record once, the last one padded.

        Raises:
          ValueError: global_batch_size is not a positive integer.
        """
        check_integer("global_batch_size", global_batch_size, example=256)
        return -(-self.records(split) // global_batch_size)

    def shard(self, name: str) -> Shard:
        """Returns the shard of a file name."""
        return self.manifest.shards[name]

    def check_index(self, shard: Shard) -> None:
        """Checks the checksum of the index of a shard.

        Raises:
          ValueError: as `shard_index`.
        """
        self._read_checked(shard.index_name, shard.index_crc32c, lambda data: None)

    def shard_index(self, shard: Shard) -> RecordIndex:
        """Reads the index of a shard.

        Raises:
          ValueError: it can't be read, or has another checksum than in the manifest.
        """
        return self._read_checked(shard.index_name, shard.index_crc32c, RecordIndex.from_bytes)

    def _read_checked(self, name: str, crc32c: int, parse: Callable[[bytes], T]) -> T:
        """Reads a file that must have the checksum of the manifest, and parses it.

        Raises:
          ValueError: the file can't be read, or has another checksum.
        """

        def parse_checked(data: bytes) -> T:
            if google_crc32c.value(data) != crc32c:
                raise ValueError("has another checksum than the manifest says: restore it")
            return parse(data)

        return _read_parsed(os.path.join(self.data_dir, name), parse_checked)

    def _shard_records(self, split: str) -> list[int]:
        shards = self.split(split).shards
        return [shard.records - len(self.excluded.positions(shard.name)) for shard in shards]


def why_replaced(info: DatasetInfo) -> str | None:
    """Explains why a directory no longer holds the version that was loaded; None if it does."""
    try:
        if why_missing(info.data_dir, COMPLETED):
            return say_gone(info.data_dir)
        versions = _read_parsed(os.path.join(info.data_dir, COMPLETED), Versions.from_bytes)
    except ValueError as error:
        return f"{error}; {VERIFY}"
    if info.version in versions.ended:
        return say_ended(info)
    if info.manifest_sha256 not in {version.manifest_sha256 for version in versions.versions}:
        return say_built_anew(info)
    return None


def say_ended(info: DatasetInfo) -> str:
    """Says that the version is one that COMPLETED names as ended."""
    return (
        f"{info.data_dir}: version {info.version} has ended, as receipts in it had to be "
        f"forgotten: {NEWEST}"
    )


def say_built_anew(info: DatasetInfo) -> str:
    """Says that COMPLETED does not name the version."""
    return f"{info.data_dir} holds another dataset by now, built in its place: {NEWEST}"


def say_gone(data_dir: str) -> str:
    """Says that a directory has no COMPLETED any more."""
    return f"{data_dir} holds no finished dataset any more (no file {COMPLETED}): {GONE}"


def load_info(
    data_dir: str | os.PathLike[str] | None = None, *, version: int | None = None
) -> DatasetInfo:
    """Reads the manifest of a version of a dataset directory.

    Args:
      data_dir: the directory, on any file system that TensorFlow knows, or tensorflow-io if it is
        installed; None for the directory that the environment variable TILLROLL_DATA_DIR names.
      version: the version; None for the newest.

    Raises:
      ValueError: no directory is named, it has no such version, the manifest can't be read, or
        nothing that is installed can read its file system.
      FileNotFoundError: the directory holds no finished dataset, or access to it is denied.
    """
    directory = os.fsdecode(data_dir) if data_dir is not None else os.getenv(DATA_DIR_VARIABLE)
    if not directory:
        raise ValueError(
            f"no dataset directory: pass data_dir, or set the environment variable "
            f"{DATA_DIR_VARIABLE}"
        )
    if is_remote(directory):
        # It needs TensorFlow, which local directories do without.
        from pipeline.records.file_systems import load_file_system

        load_file_system(directory)
    if missing := why_missing(directory, COMPLETED):
        raise FileNotFoundError(
            f"{directory} holds no finished dataset ({missing}): check the path, or build it with "
            "python -m beam_jobs.build"
        )
    versions = _read_parsed(os.path.join(directory, COMPLETED), Versions.from_bytes)
    try:
        found = versions.find(version)
    except ValueError as error:
        raise ValueError(f"{directory}: {error}") from error

    def parse(data: bytes) -> Manifest:
        found.check(data)
        return found.parse(data)

    manifest = _read_parsed(os.path.join(directory, manifest_name(found.number)), parse)
    excluded = Excluded(dataset_digest=manifest.digest)
    if not why_missing(directory, excluded_name(manifest.version)):
        path = os.path.join(directory, excluded_name(manifest.version))
        excluded = _read_parsed(path, lambda data: Excluded.from_json(data, manifest))
    return DatasetInfo(
        # The process may change its working directory.
        data_dir=directory if is_remote(directory) else str(Path(directory).absolute()),
        manifest=manifest,
        manifest_sha256=found.manifest_sha256,
        excluded=excluded,
    )


def _read_parsed(path: str, parse: Callable[[bytes], T]) -> T:
    """Reads a file and parses it.

    Raises:
      ValueError: the file can't be read, or is damaged.
    """
    try:
        return parse(read_file(path))
    except OSError as error:
        raise ValueError(f"{path} can't be read: {reason(error)}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
