"""Raw pixels copied out of local shards, without TensorFlow and without parsing a record twice."""

import functools
import math
from collections.abc import Collection, Mapping
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from pipeline.records.info import DatasetInfo
from pipeline.records.open_file import OpenFile
from pipeline.records.read_failure import explain
from pipeline.records.stored_shards import StoredShards
from pipeline.records.table import RecordTable, aligned_empty, read_index
from schemas.example import entry_bytes, find_bytes
from schemas.receipt import id_feature
from schemas.tfrecord import PAYLOAD_START, unframe

Verify = Literal["first", "always", "never"]

_ENCODED = "image/encoded"


class UnreadableRecordError(ValueError):
    """A record can't be read; the text is the sentence of `pipeline.records.read_failure`."""


class PixelReader:
    """Reads pixels of one size by the numbers of their records, and their categories.

    A record is read whole the first time: its checksums are verified, it must have the categories
    that the index has for it, and the place of its pixels is found and kept. Later, the pixels
    alone are copied from the kernel's cache to where the batch wants them. Files are read by
    `preadv`, not mapped: a mapped file that is cut off ends the process by SIGBUS, where a read
    only returns less. `StoredShards` refuses files that have changed.

    Threads may share the object.

    Attributes:
      shape: (height, width, channels) of the stored pixels.
    """

    def __init__(
        self,
        info: DatasetInfo,
        table: RecordTable,
        *,
        length: npt.NDArray[np.int32],
        categories: Mapping[str, npt.NDArray[np.int32]],
        shape: tuple[int, int, int],
        verify: Verify,
    ) -> None:
        """Reads nothing yet.

        Args:
          info: the dataset.
          table: where the records lie.
          length: bytes of the frame of each record, [records], shard by shard.
          categories: name to value of each record, [records], shard by shard.
          shape: (height, width, channels) of the stored pixels.
          verify: as in `pipeline.config.Reading`.
        """
        self.shape = shape
        self._info = info
        self._table = table
        self._length = length
        self._categories = categories
        self._verify = verify
        # Byte of its frame at which a record's pixels start; 0 where that is not known yet.
        self._pixel_start = np.zeros(len(table), np.int32)
        self._shards = StoredShards(info, table.paths)
        features = {feature.name: feature for feature in info.features}
        self._id_features = {name: features[id_feature(name)] for name in categories}
        self._entry_bytes = functools.cache(entry_bytes)

    @classmethod
    def load(
        cls,
        info: DatasetInfo,
        split: str,
        table: RecordTable,
        *,
        categories: Collection[str],
        shape: tuple[int, int, int],
        verify: Verify,
    ) -> Self:
        """Loads the columns of the record index that the reader needs beside those of the table."""
        columns = {name: f"category/{name}" for name in categories}
        _, found = read_index(
            info, split, dict.fromkeys(("length", *columns.values()), np.dtype(np.int32))
        )
        values = {name: found[column] for name, column in columns.items()}
        return cls(
            info, table, length=found["length"], categories=values, shape=shape, verify=verify
        )

    def read(
        self, numbers: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint8], dict[str, npt.NDArray[np.int64]]]:
        """Reads records by their numbers in the table, int64 [n].

        Returns:
          Pixels, uint8 [n, height, width, channels], and the categories by their names, int64 [n].

        Raises:
          UnreadableRecordError: a record is damaged, its file is missing, has changed or can't be
            read, or the directory no longer holds the version.
        """
        table = self._table
        positions = numbers if table.order is None else table.order[numbers]
        shards = np.searchsorted(table.shard_ends, positions, side="right").tolist()
        size = math.prod(self.shape)
        # Memory at such an address is taken by TensorFlow as it is.
        pixels = aligned_empty(len(numbers) * size, np.uint8)
        opened: dict[int, OpenFile] = {}  # each shard is looked at once
        starts = self._pixel_start[positions]
        are_known = (starts > 0) & (self._verify != "always")
        try:
            # Two threads copy at once as long as neither needs Python, so the loop has nothing in
            # it that can be computed for all records together.
            for shard, position, place, is_known, first in zip(
                shards,
                positions.tolist(),
                (table.offset[positions] + starts).tolist(),
                are_known.tolist(),
                range(0, pixels.size, size),
                strict=True,
            ):
                target = pixels.data[first : first + size]
                if shard not in opened:
                    opened[shard] = self._shards.open(shard)
                if is_known:
                    opened[shard].read_into(target, place)
                else:
                    self._read_record(opened[shard], position, target)
        except (OSError, ValueError) as error:
            offset = int(table.offset[position])  # of the record that the loop has come to
            raise UnreadableRecordError(
                explain(self._info, table.paths[shard], table.index_paths[shard], offset, error)
            ) from error
        values = {name: ids[positions].astype(np.int64) for name, ids in self._categories.items()}
        return pixels.reshape(-1, *self.shape), values

    def _read_record(self, file: OpenFile, position: int, target: memoryview) -> None:
        """Reads a whole record, copies its pixels into the memory of a batch and keeps their place.

        Raises:
          OSError: the file can't be read.
          ValueError: the record is damaged, or is not the record of the index.
        """
        offset = int(self._table.offset[position])
        framed = np.empty(self._length[position], np.uint8)
        file.read_into(framed.data, offset)
        unverified = self._verify == "never"
        payload = framed[PAYLOAD_START:] if unverified else unframe(framed, offset)
        place = find_bytes(payload.data, _ENCODED)
        if place.stop - place.start != len(target):
            raise ValueError(
                f"record holds {place.stop - place.start} bytes of pixels, {len(target)} expected"
            )
        # Names are sorted in a record, and `image/encoded` comes before `receipt/layout_id`.
        behind = payload[place.stop :].tobytes()
        for name, feature in self._id_features.items():
            value = int(self._categories[name][position])
            if self._entry_bytes(feature, value) not in behind:
                raise ValueError(f"record has another {name} than the index says")
        target[:] = payload.data[place]
        self._pixel_start[position] = PAYLOAD_START + place.start
