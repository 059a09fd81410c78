"""The record table: the records of a split, stratum by stratum, and where each lies."""

import io
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from pipeline.config import InputConfig
from pipeline.records.files import is_remote, read_file
from pipeline.records.info import DatasetInfo
from pipeline.sampling.integer_math import Arrays
from pipeline.sampling.phases import PhasedPlan
from pipeline.sampling.plan import BatchPlan, BatchUnits, Epoch, IntArray, plan_seed
from schemas.index import array_start, read_columns

_PARALLEL_READS = 16
ALIGNMENT = 64  # bytes: TensorFlow takes arrays that lie so as they are


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordTable:
    """Records of a split, numbered stratum by stratum, as units that a plan deals.

    Units are blocks of `block_length` neighboring records. With single records there is a stratum
    for each layout. With longer blocks there is one for each shard; the records that the blocks of
    a shard leave over lie between two of its blocks, in each epoch between two others.

    Attributes:
      paths: the shards.
      index_paths: their index files.
      index_starts: int64 [shards, 4], records of each shard and the bytes of its index file at
        which the columns `offset`, `id_end` and `id_text` start.
      shard_ends: int64 [shards], number of records up to the end of each shard.
      offset: int64 [records], byte at which the frame of each record starts, shard by shard.
      order: int32 or int64 [records], position in `offset` of each record; None where the strata
        are the shards.
      contiguous: bool [records], True for a record that lies right behind the record before; bool
        [0] with single records, where nobody asks.
      categories: int64 [strata], the category values that the strata stand for.
      first_records: int64 [strata], number of each stratum's first record.
      counts: int64 [strata], units of each stratum.
      remainder: int64 [strata], records of each stratum that its units leave over.
      block_length: records of a unit.
    """

    paths: tuple[str, ...]
    index_paths: tuple[str, ...]
    index_starts: IntArray
    shard_ends: IntArray
    offset: IntArray
    order: npt.NDArray[np.signedinteger[Any]] | None
    contiguous: npt.NDArray[np.bool_]
    categories: IntArray
    first_records: IntArray
    counts: IntArray
    remainder: IntArray
    block_length: int

    def __len__(self) -> int:
        return len(self.offset)

    def first_of_units(self, batch: BatchUnits, epoch: Epoch, xp: Arrays) -> Any:
        """Finds the numbers of the first records of units, int64 [n]."""
        first_units = np.cumsum(self.counts) - self.counts
        unit_in_stratum = batch.unit - xp.take(first_units, batch.stratum)
        start = xp.take(self.first_records, batch.stratum)
        if self.block_length > 1:
            # Units from `gap` on lie behind the remainder: with units a and b, epochs 0, 1, 2, 3
            # read the shard as -ab, a-b, ab-, -ab.
            gap = epoch.number % (xp.take(self.counts, batch.stratum) + 1)
            remainder = xp.take(self.remainder, batch.stratum)
            start = start + xp.where(unit_in_stratum < gap, 0, remainder)
        return start + unit_in_stratum * self.block_length

    @classmethod
    def by_category(cls, info: DatasetInfo, split: str, category: str) -> Self:
        """Makes a table of single records with a stratum for each value of a category."""
        values = len(info.vocabulary(category))
        # 16 bits are sorted ten times as fast as 32.
        code = np.uint16 if values <= 1 << 16 else np.int32
        files, columns = read_index(info, split, {"offset": np.int64, f"category/{category}": code})
        codes = columns[f"category/{category}"]
        return cls.by_code(files, columns["offset"], codes, values=values)

    @classmethod
    def by_code(
        cls, files: Mapping[str, Any], offset: IntArray, codes: npt.NDArray[Any], *, values: int
    ) -> Self:
        """Makes a table of single records with a stratum for each code that occurs.

        Args:
          files: of `read_index`.
          offset: of `read_index`, int64 [records].
          codes: integers [records], below `values`; `categories` are those that occur.
          values: number of codes.
        """
        ends = files["shard_ends"]
        shards = [slice(*each) for each in zip(np.append(0, ends[:-1]), ends, strict=True)]
        counts = np.zeros(values, np.int64)
        for shard in shards:
            counts += np.bincount(codes[shard], minlength=values)
        order = aligned_empty(len(codes), np.int32 if len(codes) < 1 << 31 else np.int64)
        # A counting sort, shard by shard: to sort all records at once would take memory for more
        # arrays of the dataset's length. `next_free` is where in `order` the next record of each
        # value goes. With values a b a in this shard, and next_free a: 4, b: 9, the shard sorted by
        # value is a a b, and its records go to 4 5 9.
        next_free = np.cumsum(counts) - counts
        for shard in shards:
            shard_count = np.bincount(codes[shard], minlength=values)
            first_sorted = np.cumsum(shard_count) - shard_count
            target = np.repeat(next_free - first_sorted, shard_count)
            target += np.arange(shard_count.sum())
            order[target] = shard.start + np.argsort(codes[shard], kind="stable")
            next_free += shard_count
        categories = np.flatnonzero(counts)
        counts = counts[categories]
        return cls(
            **files,
            offset=offset,
            order=order,
            contiguous=np.zeros(0, bool),
            categories=categories,
            first_records=np.cumsum(counts) - counts,
            counts=counts,
            remainder=np.zeros_like(counts),
            block_length=1,
        )

    @classmethod
    def in_shard_order(cls, info: DatasetInfo, split: str) -> Self:
        """Makes a table of all records in the order of the shards, with a stratum for each."""
        return cls.in_blocks(info, split, block_length=1)

    @classmethod
    def in_blocks(cls, info: DatasetInfo, split: str, *, block_length: int) -> Self:
        """Makes a table of blocks of neighbors, with a stratum for each shard.

        Raises:
          ValueError: a shard holds no whole block.
        """
        files, columns = read_index(info, split, {"offset": np.int64, "length": np.int32})
        sizes = np.diff(files["shard_ends"], prepend=0)
        offset, length = columns["offset"], columns["length"]
        contiguous = aligned_empty(len(offset), np.bool_)
        # Not so behind records that are left out, nor for the first record of a shard.
        contiguous[1:] = offset[1:] == offset[:-1] + length[:-1]
        contiguous[[0, *files["shard_ends"][:-1]]] = False
        if sizes.min() < block_length:
            raise ValueError(
                f"block_length {block_length} exceeds the {sizes.min()} records of the smallest "
                f"shard of split {split!r} in {info.data_dir}: choose less, or build fewer shards"
            )
        return cls(
            **files,
            offset=offset,
            order=None,
            contiguous=contiguous,
            categories=np.zeros(0, np.int64),
            first_records=np.cumsum(sizes) - sizes,
            counts=sizes // block_length,
            remainder=sizes % block_length,
            block_length=block_length,
        )


def load_record_table(info: DatasetInfo, split: str, config: InputConfig) -> RecordTable:
    """Loads the record table that a training run deals from."""
    if config.reading.block_length > 1:
        return RecordTable.in_blocks(info, split, block_length=config.reading.block_length)
    return RecordTable.by_category(info, split, config.balance.by)


def make_plan(
    info: DatasetInfo,
    split: str,
    config: InputConfig,
    table: RecordTable,
    *,
    batch_size: int,
    seed: int,
) -> PhasedPlan:
    """Makes the plan of a training run; `batch_size` is that of global batches."""
    plans = [
        BatchPlan(
            counts=table.counts,
            batch_units=batch_size // config.reading.block_length,
            seed=plan_seed(info.digest, split, seed),
            alpha=alpha,
            repeat_cap=config.balance.repeat_cap,
        )
        for alpha, _ in config.balance.phases
    ]
    first_steps = tuple(int(step) for _, step in config.balance.phases)
    return PhasedPlan(plans=tuple(plans), first_steps=first_steps)


def check_batch_size(global_batch_size: int, replicas: int, block_length: int = 1) -> None:
    """Checks that a global batch can be divided among the replicas.

    Raises:
      ValueError: it can't.
    """
    divisor = replicas * block_length
    if global_batch_size < 1 or global_batch_size % divisor:
        blocks = f" in blocks of {block_length} records" if block_length > 1 else ""
        raise ValueError(
            f"global_batch_size {global_batch_size} can't be divided by {replicas} "
            f"replicas{blocks}: choose a multiple of {divisor}"
        )


def read_index(
    info: DatasetInfo, split: str, dtypes: Mapping[str, npt.DTypeLike]
) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Reads columns of a split's index, and leaves out what `excluded.json` lists.

    Args:
      info: the dataset.
      split: the split.
      dtypes: columns of the index to the types they get.

    Returns:
      Attributes of a `RecordTable` about the shards that have any record left, and columns of
      their records by name, [records], shard by shard.

    Raises:
      ValueError: no record is left.
    """
    if not info.records(split):
        raise ValueError(f"split {split!r} of {info.data_dir} is empty: choose another")
    all_left_out = {
        shard: info.excluded.positions(shard.name) for shard in info.split(split).shards
    }
    shards = [shard for shard, out in all_left_out.items() if shard.records > len(out)]
    left_out = [all_left_out[shard] for shard in shards]
    index_paths = [os.path.join(info.data_dir, shard.index_name) for shard in shards]
    sizes = [shard.records - len(out) for shard, out in zip(shards, left_out, strict=True)]
    ends = np.cumsum(sizes)
    columns = {name: aligned_empty(ends[-1], dtype) for name, dtype in dtypes.items()}

    def read(number: int) -> list[int]:
        records = shards[number].records
        found, starts = _read_shard_index(index_paths[number], records, list(dtypes))
        # Threads write into one array, each into the rows of its own shard.
        own = slice(ends[number] - sizes[number], ends[number])
        for name, column in zip(dtypes, found, strict=True):
            columns[name][own] = np.delete(column, left_out[number])
        return [records, *starts]

    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        starts = list(pool.map(read, range(len(shards))))
    files = {
        "paths": tuple(os.path.join(info.data_dir, shard.name) for shard in shards),
        "index_paths": tuple(index_paths),
        "index_starts": np.array(starts, np.int64),
        "shard_ends": ends,
    }
    return files, columns


def _read_shard_index(
    path: str, records: int, names: list[str]
) -> tuple[list[npt.NDArray[Any]], list[int]]:
    """Reads columns of a shard's index, and the bytes of `RecordTable.index_starts`.

    Raises:
      ValueError: the file is damaged, or is not that of so many records.
    """
    with _open(path) as file:
        try:
            columns = read_columns(file, names)
            starts = [array_start(file, name) for name in ("offset", "id_end", "id_text")]
        except ValueError as error:
            raise ValueError(f"{path}: {error}: run python -m beam_jobs.verify") from error
    for column in columns:
        if len(column) != records:
            raise ValueError(
                f"{path} has {len(column)} records and the manifest {records}: run python -m "
                "beam_jobs.verify"
            )
    return columns, starts


def aligned_empty(length: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Makes an array [length] that TensorFlow can take without a copy of its own."""
    size_bytes = int(length) * np.dtype(dtype).itemsize
    memory = np.empty(size_bytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT  # memory at byte 100 is used from byte 128 on: 28
    return memory[start : start + size_bytes].view(dtype)


def _open(path: str) -> BinaryIO:
    """Opens a file for random access: of a remote one, all bytes are read first."""
    return io.BytesIO(read_file(path)) if is_remote(path) else Path(path).open("rb")
