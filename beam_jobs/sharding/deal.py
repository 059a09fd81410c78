"""The deal: the split and the shard of each record. Pure arithmetic, no Beam.

Records of a split are ordered by layout, and within a layout by the hash of their id; record i of
N goes to shard i mod K. Every shard then holds the floor or ceiling of each layout's fair share,
and shard sizes differ by at most one. With layouts of 4 and 2 records and 3 shards:

    layout   a a a a b b
    number   0 1 2 3 4 5
    shard    0 1 2 0 1 2

A bucket is a range of the hash, and the work of one worker. A record's number is the first number
of its layout, plus the records of its layout in the buckets before, plus those before it in its
own bucket. So no worker ever needs the records of a whole layout.

The plan is made from the buckets' counts, one bucket at a time; only groups of receipts (those of a
shop, say), which may lie in any buckets, are looked at as a whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from beam_jobs.errors import TRY_AGAIN, BuildError
from beam_jobs.sharding import splits
from beam_jobs.sharding.splits import IntArray, SplitArray
from schemas.manifest import dealt_histogram


@dataclass(frozen=True, kw_only=True, eq=False)
class BucketCounts:
    """Receipts of each pair of group and layout in one bucket; arrays of shape [pairs].

    Attributes:
      number: the bucket.
      size_bytes: bytes of all records of the bucket.
      group: uint64, ascending; 0 for receipts without one.
      layout: int32.
      count: int32, receipts of the pair.
    """

    number: int
    size_bytes: int
    group: npt.NDArray[np.uint64]
    layout: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]

    @classmethod
    def of(
        cls,
        number: int,
        *,
        group: npt.NDArray[np.uint64],
        layout: npt.NDArray[np.int32],
        size_bytes: int = 0,
    ) -> Self:
        """Counts the receipts of a bucket, from the group and the layout of each receipt."""
        pairs = _sum_pairs(group, layout, np.ones(len(group), np.int32))
        return cls(
            number=number, size_bytes=size_bytes, group=pairs[0], layout=pairs[1], count=pairs[2]
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """The numbers that every bucket and every shard needs.

    Attributes:
      split_names: the splits.
      quota_ends: int64 [layouts, splits], cumulative quotas of the free receipts.
      counts: int64 [layouts, splits], receipts of each layout in each split.
      shards: int64 [splits].
    """

    split_names: tuple[str, ...]
    quota_ends: IntArray
    counts: IntArray
    shards: IntArray

    @cached_property
    def first_numbers(self) -> IntArray:
        """Number of the first record of each layout in each split, [layouts, splits]."""
        return np.cumsum(self.counts, axis=0) - self.counts

    def histogram(self, split: int, shard: int) -> IntArray:
        """Records of each layout in a shard, [layouts]."""
        return dealt_histogram(self.counts[:, split], shards=int(self.shards[split]), shard=shard)


@dataclass(frozen=True, kw_only=True, eq=False)
class BucketStarts:
    """The numbers that one bucket needs beside the plan; it has n layouts and g groups.

    Attributes:
      group_split: int16 [g], split of each group in the bucket, in the groups' ascending order; -1
        where its receipts are free, as those without a group (0) are.
      layouts: int32 [n], ascending, the layouts in the bucket.
      free_rank: int64 [n], free receipts of the layout in earlier buckets.
      rank: int64 [n, splits], receipts of the layout and split in earlier buckets.
    """

    group_split: SplitArray
    layouts: npt.NDArray[np.int32]
    free_rank: IntArray
    rank: IntArray

    def to_bytes(self) -> bytes:
        """The number of groups and the arrays, one after the other."""
        arrays = (self.group_split, self.layouts, self.free_rank, self.rank)
        return len(self.group_split).to_bytes(8, "little") + b"".join(a.tobytes() for a in arrays)

    @classmethod
    def from_bytes(cls, data: bytes, *, splits: int) -> Self:
        """Inverse of `to_bytes`."""
        groups = int.from_bytes(data[:8], "little")
        start = 8 + 2 * groups  # behind the number of groups and an int16 for each
        # A layout takes an int32, an int64 and an int64 for each split. The arrays lie one behind
        # the other: of n layouts, the second starts 4 n bytes behind the first, the third 12 n.
        rows = (len(data) - start) // (4 + 8 + 8 * splits)
        return cls(
            group_split=np.frombuffer(data, np.int16, groups, 8),
            layouts=np.frombuffer(data, np.int32, rows, start),
            free_rank=np.frombuffer(data, np.int64, rows, start + 4 * rows),
            rank=np.frombuffer(data, np.int64, rows * splits, start + 12 * rows).reshape(
                rows, splits
            ),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class OldRecords:
    """Counts and groups of the records that a dataset had before a generation is appended.

    Attributes:
      counts: int64 [layouts, splits], their number.
      groups: uint64 [groups], ascending, those of their groups that come again.
      group_split: int16 [groups], split of each.
    """

    counts: IntArray
    groups: npt.NDArray[np.uint64]
    group_split: SplitArray

    @classmethod
    def empty(cls, *, layouts: int, splits: int) -> Self:
        """Makes the old records of a new dataset: none."""
        return cls(
            counts=np.zeros((layouts, splits), np.int64),
            groups=np.zeros(0, np.uint64),
            group_split=np.zeros(0, np.int16),
        )


def make_plan(
    bucket_counts: Sequence[BucketCounts],
    *,
    layouts: int,
    fractions: Mapping[str, float],
    old: OldRecords | None = None,
    shards: Mapping[str, int] | None = None,
    shard_bytes: int = 128 << 20,
    shards_multiple_of: int = 1,
) -> tuple[Plan, Iterator[tuple[int, BucketStarts]]]:
    """Decides splits and numbers from the counts of all buckets.

    Args:
      bucket_counts: those of all buckets, in any order.
      layouts: number of layouts.
      fractions: share of each split, adding up to 1. They are shares of the whole dataset, with
        the old records.
      old: the records before; None for none.
      shards: shards of each split, if given.
      shard_bytes: else, size that no shard should exceed by much.
      shards_multiple_of: the number of shards is rounded up to a multiple of this.

    Returns:
      The plan and, made one after the other on request, (bucket, its starts) of all buckets.
    """
    bucket_counts = sorted(bucket_counts, key=lambda bucket: bucket.number)
    names = tuple(fractions)
    share = np.array(list(fractions.values()))
    old = old or OldRecords.empty(layouts=layouts, splits=len(names))
    totals = np.zeros(layouts, np.int64)
    for bucket in bucket_counts:
        # Not `totals[layout] += count`, which adds once for an index that repeats: a bucket has
        # several pairs of one layout.
        np.add.at(totals, bucket.layout, bucket.count)
    # Groups first, as each goes to one split as a whole. What they leave of the shares is filled up
    # with free receipts: those without a group, or alone in theirs.
    groups, group_split = _split_groups(bucket_counts, totals, share, old)
    group_splits = [_lookup(bucket, groups, group_split) for bucket in bucket_counts]
    taken = np.zeros((layouts, len(names)), np.int64)
    for bucket, group_split_of_bucket in zip(bucket_counts, group_splits, strict=True):
        split = _of_pairs(bucket, group_split_of_bucket)
        fixed = split >= 0
        np.add.at(taken, (bucket.layout[fixed], split[fixed]), bucket.count[fixed])
    quota = splits.quotas(
        totals - taken.sum(axis=1),
        taken + old.counts,
        fractions=share,
        home=splits.home_split(list(names)),
    )
    plan = Plan(
        split_names=names,
        quota_ends=np.cumsum(quota, axis=1),
        counts=taken + quota,
        shards=_shard_counts(
            taken + quota,
            names,
            shards,
            sum(bucket.size_bytes for bucket in bucket_counts)
            / max(int(totals.sum()), 1)
            / shard_bytes,
            shards_multiple_of,
        ),
    )
    return plan, _bucket_starts(plan, bucket_counts, group_splits)


def _split_groups(
    bucket_counts: Sequence[BucketCounts],
    totals: IntArray,
    share: npt.NDArray[np.float64],
    old: OldRecords,
) -> tuple[npt.NDArray[np.uint64], SplitArray]:
    """The groups whose split is fixed, ascending, and the split of each.

    Those are the groups of old records, and new ones of two receipts or more.
    """
    # Groups are ascending, so receipts without one (0) come first in each bucket.
    starts = [np.searchsorted(bucket.group, np.uint64(1)) for bucket in bucket_counts]
    grouped = list(zip(bucket_counts, starts, strict=True))
    # One row for each pair of group and layout, whatever buckets its receipts lie in.
    group, layout, count = _sum_pairs(
        _joined([bucket.group[start:] for bucket, start in grouped], np.uint64),
        _joined([bucket.layout[start:] for bucket, start in grouped], np.int32),
        _joined([bucket.count[start:] for bucket, start in grouped], np.int32),
    )
    # Of the groups 5 5 7 8 8 with the counts 1 2 1 1 1, the group 7 has a single receipt: it may
    # go to any split, like a receipt without a group.
    first = _first_of_run(group)
    group_starts = np.flatnonzero(first)
    sizes = np.add.reduceat(count, group_starts, dtype=np.int32) if len(group) else count
    several = np.repeat(sizes > 1, np.diff(group_starts, append=len(group)))
    known = np.isin(group, old.groups)
    # What comes to old groups is taken, like the old records, before a split is chosen for any
    # other group.
    taken = old.counts.copy()
    split = old.group_split[np.searchsorted(old.groups, group[known])]
    np.add.at(taken, (layout[known], split), count[known])
    new = several & ~known
    groups, group_split = splits.assign_groups(
        group[new],
        layout[new],
        count[new],
        totals=totals + old.counts.sum(axis=1),
        taken=taken,
        fractions=share,
    )
    groups = np.concatenate([old.groups, groups])
    order = np.argsort(groups)
    return groups[order], np.concatenate([old.group_split, group_split])[order]


def _lookup(
    bucket: BucketCounts, groups: npt.NDArray[np.uint64], group_split: SplitArray
) -> SplitArray:
    """Returns the `group_split` of a bucket's BucketStarts."""
    own = bucket.group[_first_of_run(bucket.group)]
    if not len(groups):
        return np.full(len(own), -1, np.int16)
    # Where each group would stand in `groups`; one that would stand behind the last is held against
    # the last. Of the groups 5 8, the own 0 5 7 9 are held against 5 5 8 8, and 5 alone is equal.
    position = np.minimum(np.searchsorted(groups, own), len(groups) - 1)
    return np.where(groups[position] == own, group_split[position], np.int16(-1))


def _of_pairs(bucket: BucketCounts, group_split: SplitArray) -> SplitArray:
    """Split of each pair of a bucket's counts, -1 where its receipts are free."""
    # Pairs of the groups 0 0 5 7 7 belong to the bucket's groups number 0 0 1 2 2.
    return group_split[np.cumsum(_first_of_run(bucket.group)) - 1]


def _shard_counts(
    counts: IntArray,
    names: Sequence[str],
    shards: Mapping[str, int] | None,
    shards_a_record: float,
    multiple_of: int,
) -> IntArray:
    if shards is not None:
        return np.array([shards[name] for name in names], np.int64)
    # Every record counts with the mean size of all: the plan does not know sizes by split. A split
    # without records gets a shard, too, so that readers find each split that was asked for.
    wanted = np.maximum(np.ceil(counts.sum(axis=0) * shards_a_record), 1)
    return np.asarray(np.ceil(wanted / multiple_of) * multiple_of).astype(np.int64)


def _bucket_starts(
    plan: Plan, bucket_counts: Sequence[BucketCounts], group_splits: Sequence[SplitArray]
) -> Iterator[tuple[int, BucketStarts]]:
    """Yields (bucket, its starts): each layout's receipts in the buckets before, added up.

    Free receipts of a layout fill up its quotas in the order of their ranks. With quotas of 3 and 1
    in two splits, and two free receipts in each of two buckets:

        bucket       0 0 1 1
        free rank    0 1 2 3
        split        0 0 0 1

    So `free_rank` starts at 0 and 2, and `rank` at [0, 0] and [2, 0].
    """
    free_rank = np.zeros(len(plan.counts), np.int64)
    rank = np.zeros_like(plan.counts)
    quota_starts = np.pad(plan.quota_ends[:, :-1], ((0, 0), (1, 0)))
    for bucket, group_split in zip(bucket_counts, group_splits, strict=True):
        layouts, row = np.unique(bucket.layout, return_inverse=True)
        # Indexing by an array copies: adding to the sums below does not change these starts.
        starts = BucketStarts(
            group_split=group_split,
            layouts=layouts,
            free_rank=free_rank[layouts],
            rank=rank[layouts],
        )
        split = _of_pairs(bucket, group_split)
        free, fixed = split < 0, split >= 0
        counts = np.zeros(starts.rank.shape, np.int64)
        np.add.at(counts, (row[fixed], split[fixed]), bucket.count[fixed])
        free_rank[layouts] += np.bincount(row[free], bucket.count[free], len(layouts)).astype(int)
        # Split s takes the free ranks from quota_starts[s] to quota_ends[s]. The bucket has those
        # from starts.free_rank to free_rank; the overlap of the two ranges is what s gets of it.
        ends = np.minimum(plan.quota_ends[layouts], free_rank[layouts, None])
        counts += np.maximum(ends - np.maximum(quota_starts[layouts], starts.free_rank[:, None]), 0)
        rank[layouts] += counts
        yield bucket.number, starts


def assign(
    plan: Plan,
    starts: BucketStarts,
    *,
    group: npt.NDArray[np.uint64],
    layout: npt.NDArray[np.int32],
) -> tuple[SplitArray, IntArray]:
    """Assigns a split and a shard to each receipt of a bucket, given in the order of the keys.

    Returns:
      split int16 [n] and shard int64 [n].

    Raises:
      BuildError: the bucket was counted with other groups or layouts.
    """
    groups, group_row = np.unique(group, return_inverse=True)
    layouts, row = np.unique(layout, return_inverse=True)
    # The starts fit the records that were counted. Numbers of any others would be those of records
    # in other buckets, and shards would be uneven.
    if len(groups) != len(starts.group_split) or layouts.tolist() != starts.layouts.tolist():
        raise BuildError(f"{len(layout)} records were counted with others: {TRY_AGAIN}")
    split = starts.group_split[group_row]
    free = split < 0
    # The split of a free receipt is the number of quotas that its rank has gone beyond.
    free_rank = starts.free_rank[row[free]] + _rank_within(layout[free])
    split[free] = (free_rank[:, None] >= plan.quota_ends[layout[free]]).sum(axis=1)
    # One number for layout and split: of 2 splits, layout 3 in split 1 is cell 3 · 2 + 1 = 7.
    cell = layout.astype(np.int64) * len(plan.split_names) + split
    number = plan.first_numbers[layout, split] + starts.rank[row, split] + _rank_within(cell)
    return split, number % plan.shards[split]


def largest_deviation(layout_counts: IntArray, shards: int) -> float:
    """Largest difference between a layout's records in a shard and its fair share of them.

    The fair share of a layout of q * shards + r records is q + r / shards. The deal gives r shards
    q + 1 records, which are 1 - r / shards more, and the others q, which are r / shards fewer.
    """
    remainder = layout_counts % shards
    off = np.where(remainder > 0, np.maximum(remainder, shards - remainder), 0)
    return int(off.max(initial=0)) / shards


def _sum_pairs(
    group: npt.NDArray[np.uint64], layout: npt.NDArray[np.int32], count: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Sums the counts of equal pairs of group and layout; the pairs come in ascending order."""
    # By group, and by layout within a group: `lexsort` sorts by its last key first.
    order = np.lexsort((layout, group))
    group, layout, count = group[order], layout[order], count[order]
    del order  # 8 bytes a pair: many millions of pairs, where users are groups
    starts = np.flatnonzero(_first_of_run(group) | _first_of_run(layout))
    sums = np.add.reduceat(count, starts, dtype=np.int32) if len(starts) else count
    return group[starts], layout[starts], sums


def _joined(arrays: Sequence[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *arrays])


def _first_of_run(value: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Marks the elements that differ from the one before."""
    first = np.ones(len(value), bool)
    first[1:] = value[1:] != value[:-1]
    return first


def _rank_within(value: npt.NDArray[Any]) -> IntArray:
    """Counts, for each element, the earlier elements equal to it: of 7 9 7 7 it is 0 0 1 2."""
    order = np.argsort(value, kind="stable")
    ranks = np.empty(len(value), np.int64)
    ranks[order] = _prefix_within(np.ones(len(value), np.int64), value[order])
    return ranks


def _prefix_within(value: IntArray, run: npt.NDArray[Any]) -> IntArray:
    """Sums the elements before each element, from the start of its run of equal `run`.

    Of the values 1 1 1 1 with the runs 7 7 9 9 it is 0 1 0 1.
    """
    if not len(value):
        return np.zeros(0, np.int64)
    # In the example `before` is 0 1 2 3, `first` 0 0 2 0 and `run_start` 0 0 2 2: the first run
    # starts from the sum 0, the second from the sum 2.
    before = np.cumsum(value) - value
    first = np.where(_first_of_run(run), np.arange(len(run)), 0)
    run_start = np.maximum.accumulate(first)  # position at which each element's run starts
    return before - before[run_start]
