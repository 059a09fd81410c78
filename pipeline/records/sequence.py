"""The records of a split as a sequence, for PyTorch, JAX and Grain: imports no TensorFlow."""

import operator
import os
from collections.abc import Iterator, Mapping
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from pipeline.records.files import is_remote
from pipeline.records.info import DATA_DIR_VARIABLE, load_info
from pipeline.records.read_failure import explain
from pipeline.records.stored_shards import StoredShards
from pipeline.records.table import read_index
from schemas.example import decode_example
from schemas.receipt import Feature
from schemas.tfrecord import unframe

_NUMBERS: dict[str, type[np.generic]] = {"int64": np.int64, "float32": np.float32}


class Records:
    """Reads the records of a split by their positions, without TensorFlow.

    `len(records)` is the number of records, and `records[i]` a dict of every feature of record i
    by its name. A value is a `str`, a NumPy scalar or, where a record has any number of values, an
    array; the text of boxes is an array of `str`. `image/encoded` is a JPEG file as `bytes`, or
    pixels, uint8 [height, width, channels], where the dataset stores them.

    Positions count the records shard by shard, without those that `excluded.json` lists.
    `BatchSampler` yields them in batches.

    Threads and processes may share the object, which may be pickled or copied by fork: files are
    opened when they are first read, and read by offset.

    Attributes:
      info: the dataset and its version.
      split: the split.
    """

    def __init__(
        self, data_dir: str | os.PathLike[str] | None, split: str, *, version: int | None = None
    ) -> None:
        """Reads the manifest and the record indexes of a split.

        Args:
          data_dir: a local or mounted dataset directory; None for the one that the environment
            variable TILLROLL_DATA_DIR names.
          split: split to read, such as "train".
          version: version of the dataset; None for the newest.

        Raises:
          ValueError: the directory is remote, has no such version or split, the split is empty, or
            a file is damaged.
          FileNotFoundError: the directory holds no finished dataset, or a file of it is missing.
        """
        directory = os.fsdecode(data_dir) if data_dir is not None else os.getenv(DATA_DIR_VARIABLE)
        if directory and is_remote(directory):
            raise ValueError(
                f"Records reads local or mounted files, not {directory}: mount or copy it, or read "
                "it with make_dataset"
            )
        self.info = load_info(directory, version=version)
        self.split = split
        if not self.info.records(split):
            raise ValueError(f"split {split!r} of {directory} is empty: choose another")
        files, columns = read_index(self.info, split, {"offset": np.int64, "length": np.int32})
        self._paths: tuple[str, ...] = files["paths"]
        self._index_paths: tuple[str, ...] = files["index_paths"]
        self._shard_ends: npt.NDArray[np.int64] = files["shard_ends"]
        self._offset, self._length = columns["offset"], columns["length"]
        self._shards = StoredShards(self.info, self._paths)

    def __len__(self) -> int:
        return len(self._offset)

    def __getitem__(self, position: SupportsIndex) -> dict[str, Any]:
        """Reads one record; -1 is the last.

        Raises:
          IndexError: there is no such record.
          ValueError: the record is damaged, or can't be read, or the directory no longer holds the
            version.
        """
        number = operator.index(position)
        if not -len(self) <= number < len(self):
            raise IndexError(
                f"there is no record {number}: split {self.split!r} of {self.info.data_dir} has "
                f"the records 0 to {len(self) - 1}"
            )
        number %= len(self)
        shard = int(np.searchsorted(self._shard_ends, number, side="right"))
        offset, length = int(self._offset[number]), int(self._length[number])
        try:
            framed = self._shards.open(shard).read(length, offset)
            return decode_record(self.info.features, unframe(framed, offset))
        except (OSError, ValueError) as error:
            raise ValueError(
                explain(self.info, self._paths[shard], self._index_paths[shard], offset, error)
            ) from error

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self.__getitem__, range(len(self)))

    def __repr__(self) -> str:
        return f"Records({self.info.data_dir!r}, {self.split!r}, version={self.info.version})"


def decode_record(features: tuple[Feature, ...], serialized: bytes) -> dict[str, Any]:
    """Decodes a record into values as `Records` gives them.

    Raises:
      ValueError: the bytes are not a record with these features.
    """
    values: dict[str, Any] = decode_example(features, serialized)
    decoded = {feature.name: _as_numpy(feature, values[feature.name]) for feature in features}
    if values["image/format"] == "raw":
        decoded["image/encoded"] = _pixels(values)
    return decoded


def _as_numpy(feature: Feature, value: Any) -> Any:
    """Converts a decoded value; single bytes and strings stay as they are."""
    number = _NUMBERS.get(feature.dtype)
    if feature.ragged:
        # Of type object, as NumPy pads strings to the longest one, and drops zeros at their ends.
        return np.array(value, number or object)
    return number(value) if number else value


def _pixels(values: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    shape = [values[f"image/{name}"] for name in ("height", "width", "channels")]
    # A copy, as arrays over bytes can't be written to, of which PyTorch warns.
    return np.frombuffer(values["image/encoded"], np.uint8).reshape(shape).copy()
