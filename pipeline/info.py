"""What a dataset directory says of itself."""

import os
from dataclasses import dataclass

import tensorflow as tf

from schemas.index import RecordIndex
from schemas.manifest import COMPLETED, MANIFEST, Manifest, Split

DATA_DIR_VARIABLE = "TILLROLL_DATA_DIR"


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """A finished dataset directory and its manifest."""

    data_dir: str
    manifest: Manifest

    @property
    def layouts(self) -> tuple[str, ...]:
        """Names of the layouts; position is layout id."""
        return self.manifest.vocabularies["layout"]

    def split(self, name: str) -> Split:
        """One split.

        Raises:
          ValueError: there is no such split.
        """
        if name not in self.manifest.splits:
            raise ValueError(
                f"{self.data_dir} has no split {name!r}: choose one of "
                f"{', '.join(self.manifest.splits)}"
            )
        return self.manifest.splits[name]

    def shard_paths(self, split: str) -> list[str]:
        """Paths of a split's shards that hold any record."""
        shards = self.split(split).shards
        return [os.path.join(self.data_dir, shard.name) for shard in shards if shard.records]

    def record_index(self, split: str) -> RecordIndex:
        """Index of all records of a split, shard by shard."""
        paths = [os.path.join(self.data_dir, each.index_name) for each in self.split(split).shards]
        return RecordIndex.concatenate([RecordIndex.from_bytes(_read(path)) for path in paths])

    def steps_per_epoch(self, split: str, global_batch_size: int) -> int:
        """Full global batches in a split, at least 1."""
        return max(1, self.split(split).records // global_batch_size)


def load_info(data_dir: str | os.PathLike[str] | None = None) -> DatasetInfo:
    """Reads the manifest of a dataset directory.

    Args:
      data_dir: the directory, on any file system that TensorFlow knows; None for the one that
        the environment variable TILLROLL_DATA_DIR names.

    Raises:
      ValueError: neither names a directory, or its manifest can't be read.
      FileNotFoundError: the directory holds no finished dataset.
    """
    directory = os.fspath(data_dir) if data_dir is not None else os.environ.get(DATA_DIR_VARIABLE)
    if not directory:
        raise ValueError(
            f"no dataset directory: pass data_dir, or set the environment variable "
            f"{DATA_DIR_VARIABLE}"
        )
    if not tf.io.gfile.exists(os.path.join(directory, COMPLETED)):
        raise FileNotFoundError(
            f"{directory} holds no finished dataset (no file {COMPLETED}): check the path, or "
            "build it with python -m beam_jobs.build"
        )
    manifest = Manifest.from_json(_read(os.path.join(directory, MANIFEST)))
    return DatasetInfo(data_dir=directory, manifest=manifest)


def _read(path: str) -> bytes:
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read()
