"""Groups of near-duplicates, and receipts that are dropped."""

import random

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.near_duplicates.unite import (
    MAX_UNITED,
    NEW,
    Decisions,
    NearPair,
    PairedReceipt,
    drop_repeats,
    pair_of_kept,
    unite,
)


def receipt(number: int, *, group: int = 0, split: int = NEW) -> PairedReceipt:
    return PairedReceipt(
        is_new=split == NEW, key=(number, 7), group=group, split=split, id=f"r{number}"
    )


def pair(
    first: PairedReceipt, second: PairedReceipt, *, more: int = 0, sure: bool = False
) -> NearPair:
    first, second = sorted((first, second))
    return NearPair(first=first, second=second, shared=10, more=more, sure=sure)


def group_of(decisions: Decisions) -> dict[int, int]:
    return {first: group for first, _, group in decisions.groups.tolist()}


def test_connected_receipts_are_one_group():
    a, b, c, d, e = map(receipt, range(1, 6))
    pairs = [pair(a, b), pair(b, c), pair(d, e)]
    groups = group_of(unite(pairs, {}))
    assert groups[1] == groups[2] == groups[3] != groups[4] == groups[5]
    random.Random(0).shuffle(pairs)
    assert group_of(unite(pairs, {})) == groups


def test_groups_of_the_user_are_merged_and_keep_a_name():
    a, b = receipt(1, group=70), receipt(2, group=50)
    c = receipt(3)
    decided = unite([pair(a, b), pair(b, c)], {})
    assert decided.merged.tolist() == [[70, 50]]
    assert group_of(decided) == {3: 50}
    inside = unite([pair(a, receipt(2, group=70))], {})
    assert (len(inside.merged), len(inside.groups), len(inside.refused)) == (0, 0, 0)


def test_a_new_receipt_goes_to_the_split_of_an_old_one():
    decided = unite([pair(receipt(9, split=1), receipt(1))], {})
    groups = group_of(decided)
    assert groups[1] == groups[9]
    assert decided.splits.tolist() == [[groups[1], 1]]
    known = unite([pair(receipt(1), receipt(2, group=50))], {50: 2})
    assert group_of(known) == {1: 50}
    assert known.splits.tolist() == [[50, 2]]


def test_what_lies_in_two_splits_stays_apart():
    old, other, new = receipt(8, split=0), receipt(9, split=1), receipt(1)
    decided = unite([pair(old, new), pair(other, new, more=1)], {})
    assert decided.refused.tolist() == [[9, 7, 1, 7]]
    assert decided.splits[:, 1].tolist() == [0]
    assert unite([pair(receipt(1, group=50), receipt(2, group=60))], {50: 0, 60: 1}).refused.any()


def test_no_chain_swallows_a_layout():
    chain = [pair(receipt(n), receipt(n + 1)) for n in range(1, 5000)]
    decided = unite(chain, {})
    sizes: dict[int, int] = {}
    for group in group_of(decided).values():
        sizes[group] = sizes.get(group, 0) + 1
    assert max(sizes.values()) == MAX_UNITED
    assert len(decided.refused) >= 4999 // MAX_UNITED
    joined = len(chain) - len(decided.refused)
    assert joined == sum(sizes.values()) - len(sizes)


def sure_pair(first: PairedReceipt, second: PairedReceipt) -> NearPair:
    return pair(first, second, sure=True)


def test_one_of_those_that_are_surely_equal_stays():
    a, b, c, d, old = *map(receipt, range(1, 5)), receipt(9, split=0)
    assert drop_repeats([sure_pair(a, b), pair(c, d)]) == {b: a}
    assert drop_repeats([sure_pair(a, b), sure_pair(a, c), sure_pair(b, c)]) == {b: a, c: a}
    assert drop_repeats([sure_pair(b, c), sure_pair(a, c), sure_pair(c, d)]) == {b: a, c: a, d: a}
    assert drop_repeats([sure_pair(a, b), sure_pair(b, old)]) == {a: old, b: old}
    other = receipt(8, split=1)
    assert drop_repeats([sure_pair(a, old), sure_pair(a, other)]) == {a: other}
    assert drop_repeats([]) == {}


@pytest.mark.parametrize("neighbors", [1, 4])
def test_of_equal_receipts_one_stays_whichever_were_compared(neighbors: int):
    receipts = list(map(receipt, range(10)))
    random.Random(0).shuffle(receipts)
    pairs = [
        sure_pair(receipts[number], other)
        for number in range(10)
        for other in receipts[number + 1 : number + 1 + neighbors]
    ]
    dropped = drop_repeats(pairs)
    assert dropped.keys() == {*receipts} - {receipt(0)}
    assert set(dropped.values()) == {receipt(0)}


def test_what_is_like_a_dropped_receipt_is_like_the_one_that_stays():
    a, b, c, old = receipt(1), receipt(2), receipt(3), receipt(9, split=0)
    dropped = {b: a}
    assert pair_of_kept(pair(b, c), dropped) == pair(a, c)
    assert pair_of_kept(pair(a, c), dropped) == pair(a, c)
    assert pair_of_kept(pair(a, b), dropped) is None
    other = receipt(8, split=1)
    assert pair_of_kept(pair(old, b), {b: other}) is None


def test_decisions_can_be_written():
    pairs = [pair(receipt(1), receipt(2)), pair(receipt(8, split=1), receipt(3, group=5))]
    for decided in (unite(pairs, {5: 0}), unite([], {})):
        read = Decisions.from_bytes(decided.to_bytes())
        for name, values in vars(decided).items():
            assert getattr(read, name).tolist() == values.tolist()
