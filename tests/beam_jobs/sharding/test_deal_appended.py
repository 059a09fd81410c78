"""The deal of what is appended: shares of the whole dataset, and groups where they were."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("apache_beam")

from beam_jobs.sharding.deal import BucketCounts, OldRecords, Plan, assign, make_plan

FRACTIONS = {"test": 0.25, "train": 0.5, "validation": 0.25}
RECORDS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from([0, 0, 0, 7, 8, 9])), min_size=1, max_size=120
)
Records = list[tuple[int, int]]  # layout and group


def dealt(records: Records, old: OldRecords | None, layouts: int) -> tuple[Plan, np.ndarray]:
    """The plan, and the split of each record."""
    layout = np.array([layout for layout, _ in records], np.int32)
    group = np.array([group for _, group in records], np.uint64)
    counts = BucketCounts.of(0, group=group, layout=layout)
    plan, starts = make_plan(
        [counts],
        layouts=layouts,
        fractions=FRACTIONS,
        old=old,
        shards=dict.fromkeys(FRACTIONS, 3),
    )
    [(_, bucket_starts)] = starts
    split, shard = assign(plan, bucket_starts, group=group, layout=layout)
    for number, name in enumerate(FRACTIONS):
        sizes = np.bincount(shard[split == number], minlength=3)
        assert np.ptp(sizes) <= 1, name
    return plan, split


def counted(records: Records, split: np.ndarray) -> np.ndarray:
    counts = np.zeros((6, len(FRACTIONS)), np.int64)
    np.add.at(counts, ([layout for layout, _ in records], split), 1)
    return counts


def append(first: Records, second: Records) -> tuple[np.ndarray, np.ndarray]:
    """Splits of the records of two generations."""
    _, first_split = dealt(first, None, 6)
    split_of = {
        group: number for (_, group), number in zip(first, first_split, strict=True) if group
    }
    again = sorted(split_of.keys() & {group for _, group in second})
    old = OldRecords(
        counts=counted(first, first_split),
        groups=np.array(again, np.uint64),
        group_split=np.array([split_of[group] for group in again], np.int16),
    )
    plan, second_split = dealt(second, old, 6)
    assert plan.counts.tolist() == counted(second, second_split).tolist()
    return first_split, second_split


@given(RECORDS, RECORDS)
@settings(deadline=None, max_examples=150)
def test_a_group_stays_in_its_split(first: Records, second: Records) -> None:
    splits: dict[int, set[int]] = {}
    for records, split in zip((first, second), append(first, second), strict=True):
        for (_, group), number in zip(records, split.tolist(), strict=True):
            splits.setdefault(group, set()).add(number)
    assert all(len(numbers) == 1 for group, numbers in splits.items() if group)


@given(RECORDS, RECORDS)
@settings(deadline=None, max_examples=150)
def test_shares_are_those_of_the_whole_dataset(first: Records, second: Records) -> None:
    first, second = ([(layout, 0) for layout, _ in part] for part in (first, second))
    splits = append(first, second)
    whole = counted(first, splits[0]) + counted(second, splits[1])
    totals = whole.sum(axis=1, keepdims=True)
    off = np.abs(whole - totals * np.array(list(FRACTIONS.values())))
    # The first generation rounded by less than one record, and so does the second. A layout's only
    # receipt went to train.
    assert (off < 2).all()


def test_what_the_first_generation_lacks_the_second_makes_up_for() -> None:
    """The old receipts were all of one shop, and in one split: the new ones go to the others."""
    first = [(0, 7)] * 40
    second = [(0, 0)] * 120
    splits = append(first, second)
    whole = counted(first, splits[0]) + counted(second, splits[1])
    assert whole[0].tolist() == [40, 80, 40]


def test_without_old_records_nothing_changes() -> None:
    records = [(number % 5, number % 4) for number in range(50)]
    none = OldRecords.empty(layouts=6, splits=3)
    assert dealt(records, None, 6)[1].tolist() == dealt(records, none, 6)[1].tolist()
