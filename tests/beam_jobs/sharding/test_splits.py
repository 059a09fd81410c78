"""Splits: what their texts mean, and how receipts are shared out."""

import re
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("apache_beam")

import beam_jobs.sharding.splits
from beam_jobs.sharding.splits import (
    assign_groups,
    deviations,
    home_split,
    parse_fractions,
    quotas,
)

FRACTIONS = st.lists(st.integers(1, 20), min_size=1, max_size=5).map(
    lambda parts: np.array(parts) / sum(parts)
)
NO_NAME = (
    " needs a unique name in lower-case letters, digits and underscores: write for example "
    "train=0.9,validation=0.1"
)


@pytest.mark.parametrize(
    ("text", "fractions"),
    [
        ("train=1", {"train": 1.0}),
        ("train=0.9,validation=0.1", {"train": 0.9, "validation": 0.1}),
        (" train=.8 , dev_2=0.1,test=1e-1", {"train": 0.8, "dev_2": 0.1, "test": 0.1}),
        (",".join(f"{name}=0.33333333333" for name in "abc"), dict.fromkeys("abc", 1 / 3)),
    ],
    ids=["one", "two", "blanks", "thirds"],
)
def test_parses_fractions(text: str, fractions: dict[str, float]) -> None:
    parsed = parse_fractions(text)
    assert list(parsed) == list(fractions)
    assert parsed == pytest.approx(fractions)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("", "split ''" + NO_NAME, id="empty"),
        pytest.param("0.9,0.1", "split '0.9'" + NO_NAME, id="no_name"),
        pytest.param("Train=1", "split 'Train=1'" + NO_NAME, id="upper_case"),
        pytest.param("a-b=1", "split 'a-b=1'" + NO_NAME, id="hyphen"),
        pytest.param("../x=1", "split '../x=1'" + NO_NAME, id="path"),
        pytest.param("a=0.5,a=0.5", "split 'a=0.5'" + NO_NAME, id="twice"),
        pytest.param("a=1,", "split ''" + NO_NAME, id="trailing_comma"),
        pytest.param("a", "split 'a' needs a fraction, as in a=0.9", id="no_number"),
        pytest.param("a=much", "split 'a=much' needs a fraction, as in a=0.9", id="no_fraction"),
        *(
            pytest.param(
                f"a={number},b=1",
                f"the fraction of split a must be above 0 and at most 1, got {number}",
                id=number,
            )
            for number in ("0", "-0.1", "1.1", "nan", "inf")
        ),
        pytest.param(
            "a=0.5,b=0.4",
            "split fractions must add up to 1, 'a=0.5,b=0.4' adds up to 0.9",
            id="too_little",
        ),
        pytest.param(
            ",".join(f"fold_{number}={1 / 1001!r}" for number in range(1001)),
            "a dataset has at most 1,000 splits, got 1,001",
            id="too_many",
        ),
        pytest.param(
            "a=90,b=10",
            "the fraction of split a must be above 0 and at most 1, got 90",
            id="percent",
        ),
    ],
)
def test_refuses_fractions(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        parse_fractions(text)


@pytest.mark.parametrize(
    ("names", "home"), [(["test", "train"], 1), (["a", "b"], 0), (["train"], 0)]
)
def test_home_split(names: list[str], home: int) -> None:
    assert home_split(names) == home


@given(st.lists(st.integers(0, 60), min_size=1, max_size=40), FRACTIONS, st.data())
@settings(deadline=None, max_examples=200)
def test_quotas_without_groups(
    counts: list[int], fractions: np.ndarray, data: st.DataObject
) -> None:
    free = np.array(counts, np.int64)
    home = data.draw(st.integers(0, len(fractions) - 1))
    taken = np.zeros((len(free), len(fractions)), np.int64)
    result = quotas(free, taken, fractions=fractions, home=home)
    assert result.dtype == np.int64
    assert (result.sum(axis=1) == free).all()
    shared = free != 1
    wanted = free[:, None] * fractions
    assert (abs(result - wanted)[shared] < 1).all()
    assert (result[~shared] == np.eye(len(fractions), dtype=int)[home]).all()
    # Rounding errors of the layouts cancel out instead of adding up.
    drift = (result - wanted)[shared].sum(axis=0)
    assert (abs(drift) < len(fractions)).all()


@given(st.integers(2, 400), st.integers(2, 9), FRACTIONS)
@settings(deadline=None, max_examples=60)
def test_many_small_layouts_still_give_the_splits_their_totals(
    layouts: int, size: int, fractions: np.ndarray
) -> None:
    free = np.full(layouts, size, np.int64)
    taken = np.zeros((layouts, len(fractions)), np.int64)
    result = quotas(free, taken, fractions=fractions, home=0)
    assert (abs(result.sum(axis=0) - layouts * size * fractions) < len(fractions)).all()


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.lists(st.integers(0, 9), min_size=3, max_size=3)),
        min_size=1,
        max_size=20,
    ),
)
@settings(deadline=None, max_examples=150)
def test_quotas_beside_groups(rows: list[tuple[int, list[int]]]) -> None:
    fractions = np.array([0.7, 0.2, 0.1])
    free = np.array([each for each, _ in rows], np.int64)
    taken = np.array([each for _, each in rows], np.int64)
    result = quotas(free, taken, fractions=fractions, home=1)
    assert (result >= 0).all()
    assert (result.sum(axis=1) == free).all()
    fair = fractions * (free + taken.sum(axis=1))[:, None]
    # A split that groups have filled already gets nothing more.
    several = (free + taken.sum(axis=1)) > 1
    assert (result[several[:, None] & (taken >= fair)] == 0).all()
    # Where groups left room in every split, the shares come out as if there were none.
    roomy = several & (taken <= fair).all(axis=1)
    assert (abs(result + taken - fair)[roomy] < 1).all()


@pytest.mark.parametrize(
    ("free", "fractions", "expected"),
    [
        pytest.param([10], [0.9, 0.1], [[9, 1]], id="exact"),
        pytest.param([1, 1, 1], [0.5, 0.5], [[0, 1]] * 3, id="only_receipts_go_home"),
        pytest.param([0, 4], [0.5, 0.5], [[0, 0], [2, 2]], id="layout_without_free_receipts"),
        pytest.param([3, 3], [0.5, 0.5], [[2, 1], [1, 2]], id="rounding_alternates"),
        pytest.param([10**9 + 1], [0.9, 0.1], [[900_000_001, 100_000_000]], id="billion"),
    ],
)
def test_quota_examples(free: list[int], fractions: list[float], expected: list[list[int]]) -> None:
    found = quotas(
        np.array(free, np.int64),
        np.zeros((len(free), 2), np.int64),
        fractions=np.array(fractions),
        home=1,
    )
    assert found.tolist() == expected


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 4), st.integers(1, 20)), min_size=1),
    FRACTIONS,
    st.randoms(use_true_random=False),
)
@settings(deadline=None, max_examples=100)
def test_groups_get_one_split_each_in_any_order(
    pairs: list[tuple[int, int, int]], fractions: np.ndarray, random: Random
) -> None:
    unique = {(group, layout): count for group, layout, count in pairs}
    rows = [(group, layout, count) for (group, layout), count in unique.items()]
    shuffled = list(rows)
    random.shuffle(shuffled)
    results = []
    for each in (rows, shuffled):
        group, layout, count = (np.array(column) for column in zip(*each, strict=True))
        totals = np.bincount(layout, weights=count, minlength=5).astype(np.int64)
        groups, chosen = assign_groups(
            group.astype(np.uint64),
            layout.astype(np.int32),
            count.astype(np.int64),
            totals=totals,
            taken=np.zeros((len(totals), len(fractions)), np.int64),
            fractions=fractions,
        )
        results.append((groups.tolist(), chosen.tolist()))
    groups, chosen = results[0]
    assert groups == sorted({group for group, _ in unique})
    assert len(chosen) == len(groups)
    assert set(chosen) <= set(range(len(fractions)))
    assert results[0] == results[1]


def greedy(
    pairs: dict[tuple[int, int], int],
    totals: list[int],
    taken: np.ndarray,
    fractions: np.ndarray,
) -> dict[int, int]:
    """The heuristic of `assign_groups` in its plainest form: group to split."""
    sizes: dict[int, int] = {}
    for (group, _), count in pairs.items():
        sizes[group] = sizes.get(group, 0) + count
    room = [[total * fraction for fraction in fractions.tolist()] for total in totals]
    fair = [list(row) for row in room]
    room = (np.array(room) - taken).tolist()
    chosen = {}
    for group in sorted(sizes, key=lambda each: (-sizes[each], each)):
        rows = sorted((layout, count) for (of, layout), count in pairs.items() if of == group)
        costs = [0.0] * len(fractions)
        for layout, count in rows:
            for split in range(len(fractions)):
                weight = 1 / max(fair[layout][split], 1e-12)
                costs[split] += count * (count - 2 * room[layout][split]) * weight
        chosen[group] = costs.index(min(costs))
        for layout, count in rows:
            room[layout][chosen[group]] -= count
    return chosen


@given(
    st.dictionaries(
        st.tuples(st.integers(1, 2**64 - 1), st.integers(0, 4)), st.integers(1, 20), max_size=30
    ),
    st.integers(1, 40),
    FRACTIONS,
    st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=100)
def test_groups_get_the_splits_of_the_plain_heuristic(
    pairs: dict[tuple[int, int], int], at_once: int, fractions: np.ndarray, seed: int
) -> None:
    taken = np.random.default_rng(seed).integers(0, 9, (5, len(fractions)))
    totals = [1 + sum(count for (_, of), count in pairs.items() if of == at) for at in range(5)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam_jobs.sharding.splits, "_GROUPS_AT_ONCE", at_once)
        groups, chosen = assign_groups(
            np.array([group for group, _ in pairs], np.uint64),
            np.array([layout for _, layout in pairs], np.int32),
            np.array(list(pairs.values()), np.int32),
            totals=np.array(totals),
            taken=taken,
            fractions=fractions,
        )
    assert groups.dtype == np.uint64
    expected = greedy(pairs, totals, taken, fractions)
    assert dict(zip(groups.tolist(), chosen.tolist(), strict=True)) == expected


def test_equal_groups_come_near_the_shares() -> None:
    group = np.arange(1, 101, dtype=np.uint64)
    layout = np.zeros(100, np.int32)
    _, chosen = assign_groups(
        group,
        layout,
        np.full(100, 4, np.int64),
        totals=np.array([400]),
        taken=np.zeros((1, 3), np.int64),
        fractions=np.array([0.8, 0.1, 0.1]),
    )
    assert np.bincount(chosen).tolist() == [80, 10, 10]


def test_a_group_larger_than_a_small_split_goes_to_the_large_one() -> None:
    _, chosen = assign_groups(
        np.array([7], np.uint64),
        np.zeros(1, np.int32),
        np.array([50], np.int64),
        totals=np.array([100]),
        taken=np.zeros((1, 2), np.int64),
        fractions=np.array([0.1, 0.9]),
    )
    assert chosen.tolist() == [1]


@given(st.lists(st.lists(st.integers(0, 50), min_size=2, max_size=2), min_size=1))
@settings(deadline=None, max_examples=50)
def test_deviations(counts: list[list[int]]) -> None:
    fractions = np.array([0.7, 0.3])
    found = deviations(np.array(counts), fractions)
    expected = [
        [0.0 if sum(row) == 1 else abs(row[i] - sum(row) * fractions[i]) for i in range(2)]
        for row in counts
    ]
    assert found.tolist() == pytest.approx(np.array(expected))
