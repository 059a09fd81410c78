"""The records of a split as a deck of cards to deal: where each lies, stratum by stratum."""

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
from pipeline.records.info import DatasetInfo, read_file
from pipeline.sampling.integer_math import Arrays
from pipeline.sampling.plan import Epoch, IntArray, Plan, Rows, plan_seed
from schemas.index import array_start, read_columns
from schemas.manifest import MANIFEST

_PARALLEL_READS = 16
ALIGNMENT = 64  # bytes: TensorFlow takes arrays that lie so as they are


@dataclass(frozen=True, kw_only=True, eq=False)
class Deck:
    """Cards are runs of `run_length` records.

    A deck of single records has a stratum for each layout. A deck of longer runs has one for each
    shard; what the runs of a shard leave over lies between two of them, each time between others.
    Records are numbered stratum by stratum.

    Attributes:
      paths: the shards.
      index_paths: their index files.
      index_starts: int64 [shards, 4], records of each shard and the bytes of its index file at
        which the columns `offset`, `id_end` and `id_text` start.
      shard_ends: int64 [shards], how many records there are up to the end of each shard.
      offset: int64 [records], byte at which the frame of each record starts, shard by shard.
      order: int32 or int64 [records], where in `offset` each record is; None where the strata are
        the shards.
      follows: bool [records], whether it lies right behind the record before; in a deck of
        single records, which never asks, bool [0].
      categories: the category values that the strata stand for, int64 [strata].
      first_records: int64 [strata], number of each stratum's first record.
      counts: int64 [strata], cards of each stratum.
      spare: int64 [strata], records of each stratum that its cards leave over.
      run_length: records of a card.
    """

    paths: tuple[str, ...]
    index_paths: tuple[str, ...]
    index_starts: IntArray
    shard_ends: IntArray
    offset: IntArray
    order: npt.NDArray[np.signedinteger[Any]] | None
    follows: npt.NDArray[np.bool_]
    categories: IntArray
    first_records: IntArray
    counts: IntArray
    spare: IntArray
    run_length: int

    def __len__(self) -> int:
        return len(self.offset)

    def records(self, rows: Rows, epoch: Epoch, xp: Arrays) -> Any:
        """Numbers of the first records of cards that were dealt, int64 [n]."""
        firsts = np.cumsum(self.counts) - self.counts
        within = rows.card - xp.take(firsts, rows.stratum)
        start = xp.take(self.first_records, rows.stratum)
        if self.run_length > 1:
            gap = epoch.number % (xp.take(self.counts, rows.stratum) + 1)
            start = start + xp.where(within < gap, 0, xp.take(self.spare, rows.stratum))
        return start + within * self.run_length

    @classmethod
    def of_records(cls, info: DatasetInfo, split: str, *, by: str) -> Self:
        """A deck of single records, a stratum for each value of a category."""
        values = len(info.vocabulary(by))
        # 16 bits are sorted ten times as fast as 32.
        code = np.uint16 if values <= 1 << 16 else np.int32
        files, columns = read_index(info, split, {"offset": np.int64, f"category/{by}": code})
        ends, category = files["shard_ends"], columns[f"category/{by}"]
        shards = [slice(*each) for each in zip(np.append(0, ends[:-1]), ends, strict=True)]
        own_counts = [np.bincount(category[shard], minlength=values) for shard in shards]
        counts = np.sum(own_counts, axis=0)
        # A counting sort, shard by shard: where the next record of each value goes.
        following = np.cumsum(counts) - counts
        order = aligned_empty(len(category), np.int32 if len(category) < 1 << 31 else np.int64)
        for shard, own in zip(shards, own_counts, strict=True):
            place = np.repeat(following - (np.cumsum(own) - own), own) + np.arange(own.sum())
            order[place] = shard.start + np.argsort(category[shard], kind="stable")
            following += own
        categories = np.flatnonzero(counts)
        counts = counts[categories]
        return cls(
            **files,
            offset=columns["offset"],
            order=order,
            follows=np.zeros(0, bool),
            categories=categories,
            first_records=np.cumsum(counts) - counts,
            counts=counts,
            spare=np.zeros_like(counts),
            run_length=1,
        )

    @classmethod
    def in_order(cls, info: DatasetInfo, split: str) -> Self:
        """All records of a split in the order of its shards, a stratum for each shard."""
        return cls.of_runs(info, split, run_length=1)

    @classmethod
    def of_runs(cls, info: DatasetInfo, split: str, *, run_length: int) -> Self:
        """A deck of runs of neighbours, a stratum for each shard.

        Raises:
          ValueError: a shard holds no whole run.
        """
        files, columns = read_index(info, split, {"offset": np.int64, "length": np.int32})
        sizes = np.diff(files["shard_ends"], prepend=0)
        offset, length = columns["offset"], columns["length"]
        follows = aligned_empty(len(offset), np.bool_)
        follows[1:] = offset[1:] == offset[:-1] + length[:-1]
        follows[[0, *files["shard_ends"][:-1]]] = False
        if sizes.min() < run_length:
            raise ValueError(
                f"run_length {run_length} exceeds the {sizes.min()} records of the smallest shard "
                f"of split {split!r} in {info.data_dir}: choose less, or build fewer shards"
            )
        return cls(
            **files,
            offset=offset,
            order=None,
            follows=follows,
            categories=np.zeros(0, np.int64),
            first_records=np.cumsum(sizes) - sizes,
            counts=sizes // run_length,
            spare=sizes % run_length,
            run_length=run_length,
        )


def make_deck(info: DatasetInfo, split: str, config: InputConfig) -> Deck:
    """The deck that a training run deals from."""
    if config.reading.run_length > 1:
        return Deck.of_runs(info, split, run_length=config.reading.run_length)
    return Deck.of_records(info, split, by=config.balance.by)


def make_plan(
    info: DatasetInfo, split: str, config: InputConfig, deck: Deck, *, batch_size: int, seed: int
) -> Plan:
    """The plan of a training run; `batch_size` is that of global batches."""
    return Plan(
        counts=deck.counts,
        batch_cards=batch_size // config.reading.run_length,
        seed=plan_seed(info.digest, split, seed),
        balance=config.balance.temperature,
        repeat_cap=config.balance.repeat_cap,
    )


def check_batch_size(global_batch_size: int, replicas: int, run_length: int = 1) -> None:
    """Checks that a global batch can be dealt to the replicas.

    Raises:
      ValueError: it can't.
    """
    divisor = replicas * run_length
    if global_batch_size < 1 or global_batch_size % divisor:
        runs = f" in runs of {run_length}" if run_length > 1 else ""
        raise ValueError(
            f"global_batch_size {global_batch_size} can't be divided by {replicas} "
            f"replicas{runs}: choose a multiple of {divisor}"
        )


def read_index(
    info: DatasetInfo, split: str, dtypes: Mapping[str, npt.DTypeLike]
) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """The files of a split's shards that have any record left, and columns of those records.

    Args:
      info: the dataset.
      split: the split.
      dtypes: columns of the index to the types they get.

    Returns:
      Attributes of a `Deck`, and columns by their names, [records], shard by shard.
    """
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
        with _open(index_paths[number]) as file:
            try:
                found = read_columns(file, list(dtypes))
                starts = [array_start(file, name) for name in ("offset", "id_end", "id_text")]
            except ValueError as error:
                raise ValueError(
                    f"{index_paths[number]}: {error}: run python -m beam_jobs.verify"
                ) from error
        own = slice(ends[number] - sizes[number], ends[number])
        for name, column in zip(dtypes, found, strict=True):
            if len(column) != shards[number].records:
                raise ValueError(
                    f"{index_paths[number]} has {len(column)} records and {MANIFEST} "
                    f"{shards[number].records}: run python -m beam_jobs.verify"
                )
            columns[name][own] = np.delete(column, left_out[number])
        return [shards[number].records, *starts]

    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        starts = list(pool.map(read, range(len(shards))))
    files = {
        "paths": tuple(os.path.join(info.data_dir, shard.name) for shard in shards),
        "index_paths": tuple(index_paths),
        "index_starts": np.array(starts, np.int64),
        "shard_ends": ends,
    }
    return files, columns


def aligned_empty(length: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array [length] that TensorFlow can take with no copy of its own."""
    size_bytes = int(length) * np.dtype(dtype).itemsize
    memory = np.empty(size_bytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size_bytes].view(dtype)


def _open(path: str) -> BinaryIO:
    """A file to read at any place: one of this machine, or all of another's."""
    return io.BytesIO(read_file(path)) if "://" in path else Path(path).open("rb")
