"""The deal: every shard gets each layout's fair share, however the records were cut up."""

import pickle
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("apache_beam")

from beam_jobs.errors import BuildError
from beam_jobs.sharding.deal import (
    BucketCounts,
    BucketStarts,
    Plan,
    assign,
    largest_deviation,
    make_plan,
)

SPLITS = (
    {"train": 1.0},
    {"train": 0.9, "validation": 0.1},
    {"test": 0.25, "train": 0.5, "validation": 0.25},
    {"a": 0.34, "b": 0.33, "c": 0.33},
)


@dataclass(frozen=True)
class Case:
    """Records in the order of their keys, and what is asked for."""

    layout: tuple[int, ...]
    group: tuple[int, ...]
    cuts: tuple[int, ...]
    fractions: dict[str, float]
    shards: tuple[int, ...]

    @property
    def layouts(self) -> int:
        return max(self.layout) + 1


@st.composite
def cases(draw: st.DrawFn, *, groups: bool) -> Case:
    # A few common layouts and many rare ones, as in life.
    sizes = draw(st.lists(st.integers(1, 4) | st.integers(1, 40), min_size=1, max_size=12))
    layout = draw(st.permutations([kind for kind, size in enumerate(sizes) for _ in range(size)]))
    count = len(layout)
    group = [0] * count
    if groups:
        group = draw(
            st.lists(
                st.sampled_from([0, 0, 0, 3, 5, 2**64 - 1, *range(10, 20)]),
                min_size=count,
                max_size=count,
            )
        )
    cuts = draw(st.lists(st.integers(0, count), max_size=5))
    fractions = draw(st.sampled_from(SPLITS))
    shards = draw(st.lists(st.integers(1, 9), min_size=len(fractions), max_size=len(fractions)))
    return Case(tuple(layout), tuple(group), tuple(sorted(cuts)), fractions, tuple(shards))


def deal(
    case: Case, *, cuts: Sequence[int] | None = None, reverse: bool = False
) -> tuple[Plan, list[int], list[int]]:
    """Plan, and split and shard of each record."""
    group, layout = np.array(case.group, np.uint64), np.array(case.layout, np.int32)
    ends = np.array(case.cuts if cuts is None else cuts, int)
    # Buckets without records are not counted, as in the job; so bucket numbers have gaps.
    buckets = [
        (3 * number, rows)
        for number, rows in enumerate(np.split(np.arange(len(layout)), ends))
        if len(rows)
    ]
    bucket_counts = [
        BucketCounts.of(number, group=group[rows], layout=layout[rows], size_bytes=100 * len(rows))
        for number, rows in buckets
    ]
    plan, all_starts = make_plan(
        bucket_counts[::-1] if reverse else bucket_counts,
        layouts=case.layouts,
        fractions=case.fractions,
        shards=dict(zip(case.fractions, case.shards, strict=True)),
    )
    starts = dict(all_starts)
    assert list(starts) == [number for number, _ in buckets]
    split, shard = np.full(len(layout), -1), np.full(len(layout), -1)
    for number, rows in buckets:
        split[rows], shard[rows] = assign(
            plan,
            BucketStarts.from_bytes(starts[number].to_bytes(), splits=len(plan.split_names)),
            group=group[rows],
            layout=layout[rows],
        )
    return plan, split.tolist(), shard.tolist()


def histograms(case: Case, split: list[int], shard: list[int]) -> list[np.ndarray]:
    """Records of each layout in each shard, an array [shards, layouts] a split."""
    found = [np.zeros((count, case.layouts), int) for count in case.shards]
    for layout, its_split, its_shard in zip(case.layout, split, shard, strict=True):
        found[its_split][its_shard, layout] += 1
    return found


def check_deal(case: Case) -> tuple[Plan, list[int], list[int]]:
    """Checks the properties of every deal, with groups or without."""
    plan, split, shard = deal(case)
    assert plan.counts.sum() == len(case.layout)
    for number, found in enumerate(histograms(case, split, shard)):
        counts = plan.counts[:, number]
        for shard, histogram in enumerate(found):
            assert histogram.tolist() == plan.histogram(number, shard).tolist()
        off = abs(found - counts / case.shards[number])
        assert off.max() < 1
        assert largest_deviation(counts, case.shards[number]) == pytest.approx(off.max())
        assert np.ptp(found.sum(axis=1)) <= 1
    return plan, split, shard


@given(cases(groups=False))
@settings(deadline=None, max_examples=150)
def test_every_shard_and_split_holds_its_fair_share(case: Case) -> None:
    plan, split, _ = check_deal(case)
    totals = Counter(case.layout)
    home = list(case.fractions).index("train") if "train" in case.fractions else 0
    for layout, its_split in zip(case.layout, split, strict=True):
        if totals[layout] == 1:
            assert its_split == home
    share = np.array(list(case.fractions.values()))
    for layout, counts in enumerate(plan.counts):
        if totals[layout] > 1:
            assert (abs(counts - totals[layout] * share) < 1).all()


@given(cases(groups=True))
@settings(deadline=None, max_examples=150)
def test_groups_never_part(case: Case) -> None:
    _, split, _ = check_deal(case)
    splits_of = defaultdict(set)
    for group, its_split in zip(case.group, split, strict=True):
        splits_of[group].add(its_split)
    splits_of.pop(0, None)
    assert all(len(each) == 1 for each in splits_of.values())


@given(cases(groups=True), st.data())
@settings(deadline=None, max_examples=60)
def test_the_deal_does_not_depend_on_the_buckets_or_their_order(
    case: Case, data: st.DataObject
) -> None:
    count = len(case.layout)
    other = sorted(data.draw(st.lists(st.integers(0, count), max_size=7)))
    _, *places = deal(case)
    assert len(places[0]) == count
    for cuts, reverse in ((case.cuts, True), (other, False), ((), False), (range(count), True)):
        assert list(deal(case, cuts=cuts, reverse=reverse)[1:]) == places


@pytest.mark.parametrize(
    ("counts", "shards", "largest"),
    [
        pytest.param([8, 16, 0], 8, 0.0, id="nothing_left_over"),
        pytest.param([1], 8, 0.875, id="one_record_in_eight_shards"),
        pytest.param([7], 8, 0.875, id="one_record_too_few"),
        pytest.param([4, 5], 8, 0.625, id="the_worse_of_two_layouts"),
        pytest.param([], 8, 0.0, id="no_layout"),
    ],
)
def test_largest_deviation(counts: list[int], shards: int, largest: float) -> None:
    assert largest_deviation(np.array(counts, np.int64), shards) == largest


def test_the_shares_give_way_to_a_group_and_only_to_it() -> None:
    """One group holds half of layout 0, and a single receipt of layout 1 belongs to it."""
    case = Case(
        layout=(0,) * 20 + (1,),
        group=(7,) * 10 + (0,) * 10 + (7,),
        cuts=(5, 12),
        fractions={"train": 0.8, "test": 0.2},
        shards=(2, 1),
    )
    plan, split, _ = check_deal(case)
    assert (
        len({its_split for group, its_split in zip(case.group, split, strict=True) if group}) == 1
    )
    assert plan.counts[0].tolist() == [16, 4]
    assert plan.counts[1].tolist() == [1, 0]


def test_many_splits() -> None:
    """More than a byte can number, with groups and without."""
    fractions = {f"fold_{number}": 1 / 300 for number in range(300)}
    grouped = tuple(number // 2 if number < 300 else 0 for number in range(900))
    case = Case((0,) * 450 + (1,) * 450, grouped, (400,), fractions, (1,) * 300)
    plan, split, _ = check_deal(case)
    assert set(split) == set(range(300))
    assert plan.counts.sum(axis=0).tolist() == [3] * 300


def test_the_plan_does_not_grow_with_the_groups() -> None:
    """Every worker gets it; of the groups each bucket gets its own."""

    def plan_of(groups: int) -> bytes:
        case = Case((0,) * 2000, tuple(range(groups)) * (2000 // groups), (), SPLITS[1], (1, 1))
        return pickle.dumps(deal(case)[0])

    assert len(plan_of(1000)) == len(plan_of(2))


@pytest.mark.parametrize(
    ("group", "layout"),
    [
        pytest.param([1, 2, 3], [0, 0, 0], id="another_group"),
        pytest.param([1, 2, 2], [0, 0, 1], id="another_layout"),
        pytest.param([1, 1, 1], [0, 0, 0], id="a_group_too_few"),
    ],
)
def test_a_bucket_that_was_counted_with_other_records(group: list[int], layout: list[int]) -> None:
    counted = np.array([1, 2, 2], np.uint64), np.zeros(3, np.int32)
    bucket = BucketCounts.of(0, group=counted[0], layout=counted[1])
    plan, starts = make_plan([bucket], layouts=2, fractions={"train": 1.0})
    [(_, first)] = starts
    with pytest.raises(BuildError, match="3 records were counted with others: "):
        assign(plan, first, group=np.array(group, np.uint64), layout=np.array(layout, np.int32))


def test_a_group_of_one_receipt_is_free() -> None:
    grouped = Case((0,) * 10, tuple(range(1, 11)), (4,), {"train": 0.5, "test": 0.5}, (1, 1))
    plan, split, _ = check_deal(grouped)
    assert plan.counts.tolist() == [[5, 5]]
    assert Counter(split) == {0: 5, 1: 5}


def test_positions_within_a_layout_follow_the_order_of_the_keys() -> None:
    case = Case((0, 1, 0, 0, 1, 0), (0,) * 6, (2,), {"train": 1.0}, (4,))
    _, split, shard = deal(case)
    assert split == [0] * 6
    # Layout 0 is dealt to 0, 1, 2, 3; layout 1 goes on with 0, 1.
    assert shard == [0, 0, 1, 2, 1, 3]


@pytest.mark.parametrize(
    ("records", "record_bytes", "multiple_of", "shards"),
    [
        pytest.param(100, 1000, 1, [5, 5], id="by_size"),
        pytest.param(100, 1001, 1, [6, 6], id="rounded_up"),
        pytest.param(100, 1000, 4, [8, 8], id="multiple_of_workers"),
        pytest.param(2, 10, 1, [1, 1], id="at_least_one"),
        pytest.param(2, 10, 3, [3, 3], id="at_least_the_multiple"),
    ],
)
def test_number_of_shards(
    records: int, record_bytes: int, multiple_of: int, shards: list[int]
) -> None:
    bucket = BucketCounts.of(
        0,
        group=np.zeros(records, np.uint64),
        layout=np.zeros(records, np.int32),
        size_bytes=records * record_bytes,
    )
    plan, _ = make_plan(
        [bucket],
        layouts=1,
        fractions={"train": 0.5, "test": 0.5},
        shard_bytes=10_000,
        shards_multiple_of=multiple_of,
    )
    assert plan.shards.tolist() == shards


def test_a_split_without_records_still_has_its_shard() -> None:
    bucket = BucketCounts.of(0, group=np.zeros(1, np.uint64), layout=np.zeros(1, np.int32))
    plan, starts = make_plan([bucket], layouts=1, fractions={"train": 0.9, "test": 0.1})
    assert plan.counts.tolist() == [[1, 0]]
    assert plan.shards.tolist() == [1, 1]
    [(_, first)] = starts
    again = BucketStarts.from_bytes(first.to_bytes(), splits=2)
    split, shard = assign(plan, again, group=np.zeros(1, np.uint64), layout=np.zeros(1, np.int32))
    assert (split.tolist(), shard.tolist()) == ([0], [0])


def test_census_counts_pairs_of_group_and_layout() -> None:
    bucket = BucketCounts.of(
        6,
        group=np.array([9, 0, 9, 0, 9], np.uint64),
        layout=np.array([1, 1, 0, 1, 1], np.int32),
        size_bytes=77,
    )
    assert (bucket.number, bucket.size_bytes) == (6, 77)
    rows = list(
        zip(bucket.group.tolist(), bucket.layout.tolist(), bucket.count.tolist(), strict=True)
    )
    assert rows == [(0, 1, 2), (9, 0, 1), (9, 1, 2)]
    assert bucket.count.dtype == np.int32


def test_starts_name_the_layouts_of_their_block() -> None:
    case = Case((2, 0, 2, 1), (0,) * 4, (), {"train": 1.0}, (1,))
    bucket_counts = [
        BucketCounts.of(number, group=np.zeros(2, np.uint64), layout=np.array(rows, np.int32))
        for number, rows in enumerate((case.layout[:2], case.layout[2:]))
    ]
    _, starts = make_plan(bucket_counts, layouts=3, fractions=case.fractions)

    def row(each: BucketStarts) -> list[list[int]]:
        return [each.layouts.tolist(), each.free_rank.tolist(), each.rank[:, 0].tolist()]

    assert [(bucket, row(each)) for bucket, each in starts] == [
        (0, [[0, 2], [0, 0], [0, 0]]),
        (1, [[1, 2], [0, 1], [0, 1]]),
    ]
