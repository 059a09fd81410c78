"""Which shard each record goes to: pure arithmetic, no Beam.

Records of a split are ordered by layout, and within a layout by the hash of their id; record i of
N goes to shard i mod K. Every shard then holds the floor or ceiling of each layout's fair share,
and shard sizes differ by at most one. A record's number follows from how many records of its
layout lie in the hash ranges (blocks) before its own, so no worker ever sees a whole layout.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from beam_jobs import splits

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Census:
    """How many receipts of each layout and group lie in one block; arrays of shape [pairs].

    `group` is uint64 (0 for receipts without one), `layout` int32, `count` int64; `size_bytes` is
    that of all records of the block.
    """

    block: int
    size_bytes: int
    group: npt.NDArray[np.uint64]
    layout: npt.NDArray[np.int32]
    count: IntArray

    @classmethod
    def of(
        cls,
        block: int,
        *,
        group: npt.NDArray[np.uint64],
        layout: npt.NDArray[np.int32],
        size_bytes: int = 0,
    ) -> Self:
        """Counts the receipts of a block; `group` and `layout` have a row a receipt."""
        pairs = _sum_pairs(group, layout, np.ones(len(group), np.int64))
        return cls(
            block=block, size_bytes=size_bytes, group=pairs[0], layout=pairs[1], count=pairs[2]
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What every block needs to know.

    Attributes:
      split_names: the splits.
      groups: uint64, ascending, the groups whose split is fixed; others are free.
      group_split: int8, split of each of `groups`.
      quota_ends: int64 [layouts, splits], cumulative quotas of the free receipts.
      counts: int64 [layouts, splits], receipts of each layout in each split.
      shards: int64 [splits].
    """

    split_names: tuple[str, ...]
    groups: npt.NDArray[np.uint64]
    group_split: npt.NDArray[np.int8]
    quota_ends: IntArray
    counts: IntArray
    shards: IntArray

    @property
    def first_numbers(self) -> IntArray:
        """Number of the first record of each layout in each split, [layouts, splits]."""
        return np.cumsum(self.counts, axis=0) - self.counts


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockStarts:
    """What one block needs beside the plan; rows belong to `layouts`.

    Attributes:
      layouts: int32 [n], ascending, the layouts in the block.
      free_rank: int64 [n], free receipts of the layout in earlier blocks.
      rank: int64 [n, splits], receipts of the layout and split in earlier blocks.
    """

    layouts: npt.NDArray[np.int32]
    free_rank: IntArray
    rank: IntArray

    def to_bytes(self) -> bytes:
        """The arrays one after the other."""
        return b"".join(each.tobytes() for each in (self.layouts, self.free_rank, self.rank))

    @classmethod
    def from_bytes(cls, data: bytes, *, splits: int) -> Self:
        """Inverse of `to_bytes`."""
        rows = len(data) // (4 + 8 + 8 * splits)
        return cls(
            layouts=np.frombuffer(data, np.int32, rows),
            free_rank=np.frombuffer(data, np.int64, rows, 4 * rows),
            rank=np.frombuffer(data, np.int64, rows * splits, 12 * rows).reshape(rows, splits),
        )


def make_plan(
    censuses: Sequence[Census],
    *,
    layouts: int,
    fractions: Mapping[str, float],
    shards: Mapping[str, int] | None = None,
    shard_bytes: int = 128 << 20,
    shards_multiple_of: int = 1,
) -> tuple[Plan, dict[int, BlockStarts]]:
    """Decides splits and numbers from the counts of all blocks.

    Args:
      censuses: one a block, in any order.
      layouts: number of layouts.
      fractions: share of each split, adding up to 1.
      shards: shards of each split, if given.
      shard_bytes: else, size that no shard should exceed by much.
      shards_multiple_of: the number of shards is rounded up to a multiple of this.

    Returns:
      The plan and, a block, where its ranks start.
    """
    censuses = sorted(censuses, key=lambda census: census.block)
    names = tuple(fractions)
    share = np.array(list(fractions.values()))
    block = np.repeat(
        np.array([each.block for each in censuses], np.int64), [len(c.count) for c in censuses]
    )
    group = np.concatenate([np.zeros(0, np.uint64), *(each.group for each in censuses)])
    layout = np.concatenate([np.zeros(0, np.int32), *(each.layout for each in censuses)])
    count = np.concatenate([np.zeros(0, np.int64), *(each.count for each in censuses)])
    totals = np.zeros(layouts, np.int64)
    np.add.at(totals, layout, count)

    fixed, groups, group_split = _fixed_groups(group, layout, count, totals, share)
    split = np.zeros(len(group), np.int8)
    split[fixed] = group_split[np.searchsorted(groups, group[fixed])]
    taken = np.zeros((layouts, len(names)), np.int64)
    np.add.at(taken, (layout[fixed], split[fixed]), count[fixed])
    quota = splits.quotas(
        totals - taken.sum(axis=1), taken, fractions=share, home=splits.home_split(list(names))
    )
    plan = Plan(
        split_names=names,
        groups=groups,
        group_split=group_split,
        quota_ends=np.cumsum(quota, axis=1),
        counts=taken + quota,
        shards=_shard_counts(
            taken + quota,
            names,
            shards,
            sum(each.size_bytes for each in censuses) / max(int(totals.sum()), 1) / shard_bytes,
            shards_multiple_of,
        ),
    )
    return plan, _block_starts(plan, block, layout, count, fixed, split)


def _fixed_groups(
    group: npt.NDArray[np.uint64],
    layout: npt.NDArray[np.int32],
    count: IntArray,
    totals: IntArray,
    share: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint64], npt.NDArray[np.int8]]:
    """Splits of the groups of two receipts or more; and which rows belong to them."""
    grouped = group != 0
    groups, position = np.unique(group[grouped], return_inverse=True)
    sizes = np.zeros(len(groups), np.int64)
    np.add.at(sizes, position, count[grouped])
    fixed = np.zeros(len(group), bool)
    fixed[grouped] = sizes[position] > 1
    # One row a pair of group and layout, whatever blocks its receipts lie in.
    pairs = _sum_pairs(group[fixed], layout[fixed], count[fixed])
    return fixed, *splits.assign_groups(*pairs, totals=totals, fractions=share)


def _shard_counts(
    counts: IntArray,
    names: Sequence[str],
    shards: Mapping[str, int] | None,
    shards_a_record: float,
    multiple_of: int,
) -> IntArray:
    if shards is not None:
        return np.array([shards[name] for name in names], np.int64)
    wanted = np.maximum(np.ceil(counts.sum(axis=0) * shards_a_record), 1)
    return np.asarray(np.ceil(wanted / multiple_of) * multiple_of).astype(np.int64)


def _block_starts(
    plan: Plan,
    block: IntArray,
    layout: npt.NDArray[np.int32],
    count: IntArray,
    fixed: npt.NDArray[np.bool_],
    split: npt.NDArray[np.int8],
) -> dict[int, BlockStarts]:
    """Prefix sums, over the blocks, of each layout's receipts."""
    # One cell for each pair of layout and block, blocks of a layout one after the other.
    blocks = int(block.max()) + 1 if len(block) else 0
    cells, cell = np.unique(layout.astype(np.int64) * max(blocks, 1) + block, return_inverse=True)
    cell_layout, cell_block = np.divmod(cells, max(blocks, 1))
    free = np.zeros(len(cells), np.int64)
    np.add.at(free, cell[~fixed], count[~fixed])
    free_rank = _prefix_within(free, cell_layout)
    # Free receipts of ranks [free_rank, free_rank + free) cut at the layout's quotas.
    ends = np.minimum(plan.quota_ends[cell_layout], (free_rank + free)[:, None])
    starts = np.concatenate(
        [np.zeros((len(cells), 1), np.int64), plan.quota_ends[cell_layout, :-1]], axis=1
    )
    per_split = np.maximum(ends - np.maximum(starts, free_rank[:, None]), 0)
    np.add.at(per_split, (cell[fixed], split[fixed]), count[fixed])
    rank = np.stack([_prefix_within(column, cell_layout) for column in per_split.T], axis=1)
    by_block = np.argsort(cell_block, kind="stable")
    numbers, firsts = np.unique(cell_block[by_block], return_index=True)
    return {
        int(number): BlockStarts(
            layouts=cell_layout[rows].astype(np.int32), free_rank=free_rank[rows], rank=rank[rows]
        )
        for number, rows in zip(numbers, np.split(by_block, firsts[1:]), strict=True)
    }


def assign(
    plan: Plan,
    starts: BlockStarts,
    *,
    group: npt.NDArray[np.uint64],
    layout: npt.NDArray[np.int32],
) -> tuple[npt.NDArray[np.int8], IntArray]:
    """Split and shard of each receipt of a block, which must be in the order of the keys.

    Returns:
      split int8 [n] and shard int64 [n].
    """
    row = np.searchsorted(starts.layouts, layout)
    split = np.full(len(layout), -1, np.int8)
    if len(plan.groups):
        position = np.minimum(np.searchsorted(plan.groups, group), len(plan.groups) - 1)
        fixed = (group != 0) & (plan.groups[position] == group)
        split[fixed] = plan.group_split[position[fixed]]
    free = split < 0
    free_rank = starts.free_rank[row[free]] + _rank_within(layout[free])
    split[free] = (free_rank[:, None] >= plan.quota_ends[layout[free]]).sum(axis=1)
    cell = layout.astype(np.int64) * len(plan.split_names) + split
    number = plan.first_numbers[layout, split] + starts.rank[row, split] + _rank_within(cell)
    return split, number % plan.shards[split]


def _sum_pairs(
    group: npt.NDArray[np.uint64], layout: npt.NDArray[np.int32], count: IntArray
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32], IntArray]:
    """Each pair of group and layout once, with the sum of its counts."""
    order = np.lexsort((layout, group))
    group, layout = group[order], layout[order]
    first = np.ones(len(order), bool)
    first[1:] = (group[1:] != group[:-1]) | (layout[1:] != layout[:-1])
    starts = np.flatnonzero(first)
    sums = np.add.reduceat(count[order], starts) if len(starts) else np.zeros(0, np.int64)
    return group[starts], layout[starts], sums


def _rank_within(value: npt.NDArray[Any]) -> IntArray:
    """How many earlier elements are equal to each element."""
    order = np.argsort(value, kind="stable")
    ranks = np.empty(len(value), np.int64)
    ranks[order] = _prefix_within(np.ones(len(value), np.int64), value[order])
    return ranks


def _prefix_within(value: IntArray, run: npt.NDArray[Any]) -> IntArray:
    """Sum of the elements before each element in its run of equal `run`."""
    if not len(value):
        return np.zeros(0, np.int64)
    before = np.cumsum(value) - value
    first = np.ones(len(run), bool)
    first[1:] = run[1:] != run[:-1]
    return before - before[np.maximum.accumulate(np.where(first, np.arange(len(run)), 0))]
