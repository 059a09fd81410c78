"""The plan of global batches: shares, orders and repeats, over whole epochs at once."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sampling.plan import Plan, Rows, example_seeds, plan_seed

SHARE = 1 << 20  # unit of Plan.shares

PLANS = st.builds(
    Plan,
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=8).map(np.array),
    batch_cards=st.sampled_from([1, 2, 3, 4, 6, 12, 32, 60]),
    seed=st.integers(0, 2**32 - 1),
    balance=st.sampled_from([0, 0.3, 0.5, 1]),
    repeat_cap=st.sampled_from([1, 2.5, 8, 1000.0, math.inf]),
)
EPOCHS = st.one_of(st.integers(0, 20), st.integers(0, 10**6))
MANY = settings(deadline=None, max_examples=150)


def natural(counts: list[int], batch_cards: int, **options: Any) -> Plan:
    return Plan(counts=np.array(counts), batch_cards=batch_cards, **options)


def dealt(plan: Plan, number: int) -> Rows:
    """A whole epoch in time order; arrays of shape [places]."""
    step, row = np.divmod(np.arange(plan.places), plan.batch_cards)
    return plan.rows(plan.epoch(np.int64(number)), step, row)


def times(plan: Plan, number: int) -> np.ndarray:
    """How often each card comes in an epoch."""
    return np.bincount(dealt(plan, number).card, minlength=plan.cards)


def strata(plan: Plan) -> np.ndarray:
    """Each card's stratum."""
    return np.repeat(np.arange(len(plan.counts)), plan.counts)


def is_rounded(counts: np.ndarray, numerator: np.ndarray, denominator: int) -> bool:
    """Whether integers are the floor or ceiling of fractions."""
    return bool(np.all(np.abs(counts * denominator - numerator) < denominator))


@given(plan=PLANS, number=EPOCHS, replicas=st.sampled_from([1, 2, 3, 4]))
@MANY
def test_strata_are_even_in_every_batch_and_replica(plan: Plan, number: int, replicas: int):
    """Within one of the share that a stratum has of the epoch, of each batch, of each slice."""
    stratum = dealt(plan, number).stratum.reshape(plan.steps_per_epoch, plan.batch_cards)
    is_of = stratum[..., None] == np.arange(len(plan.counts))
    assert is_rounded(is_of.sum(axis=(0, 1)), plan.shares, SHARE)
    assert is_rounded(is_of.sum(axis=1), plan.shares, SHARE * plan.steps_per_epoch)
    if plan.batch_cards % replicas == 0:
        for replica in range(replicas):
            in_slice = is_of[:, replica::replicas].sum(axis=1)
            assert is_rounded(in_slice, plan.shares, SHARE * plan.steps_per_epoch * replicas)


@given(plan=PLANS, number=EPOCHS)
@MANY
def test_cards_of_a_stratum_come_equally_often_and_far_apart(plan: Plan, number: int):
    rows = dealt(plan, number)
    np.testing.assert_array_equal(strata(plan)[rows.card], rows.stratum)
    for stratum, count in enumerate(plan.counts):
        in_time = rows.card[rows.stratum == stratum]
        often = np.bincount(in_time, minlength=plan.cards)[strata(plan) == stratum]
        assert is_rounded(often, np.full(count, len(in_time)), count)
        # Of any `count` neighbours, each is another card.
        np.testing.assert_array_equal(in_time[count:], in_time[:-count])
        assert len(set(in_time[:count].tolist())) == min(count, len(in_time))


@given(counts=st.lists(st.integers(1, 60), min_size=1, max_size=8), steps=st.integers(1, 9))
@MANY
def test_natural_shares_that_fill_their_batches_deal_each_card_once(counts: list[int], steps: int):
    counts[0] += -sum(counts) % steps
    plan = natural(counts, sum(counts) // steps)
    assert (plan.steps_per_epoch, plan.places) == (steps, plan.cards)
    for number in (0, 1, 77):
        np.testing.assert_array_equal(times(plan, number), 1)


@given(plan=PLANS, start=st.sampled_from([0, 1, 5, 1000]))
@settings(deadline=None, max_examples=40)
def test_no_card_is_left_behind_over_epochs(plan: Plan, start: int):
    """What an epoch leaves out, or deals once more, moves on through the stratum."""
    shares = plan.shares / SHARE
    share = (shares / plan.counts)[strata(plan)]
    total = np.zeros(plan.cards, np.int64)
    for epochs in range(1, 41):
        total += times(plan, start + epochs - 1)
        of_stratum = np.bincount(strata(plan), total)
        # Roundings of a stratum's places do not add up, nor do those of its cards.
        assert np.abs(of_stratum - epochs * shares).max() < 3
        assert is_rounded(total, of_stratum[strata(plan)], plan.counts[strata(plan)])
        assert np.abs(total - epochs * share).max() < 4


@pytest.mark.parametrize(
    ("counts", "batch_cards"),
    [
        ([1] * 9, 5),  # 4 of 9 places are lost in every epoch
        ([2] * 40 + [1], 41),
        ([50, 30, 10, 5, 2, 1, 1], 50),
        ([7, 7], 8),
        ([15], 8),
    ],
)
def test_drop_remainder_misses_no_card_three_times_in_a_row(counts: list[int], batch_cards: int):
    plan = natural(counts, batch_cards)
    missing = np.array([times(plan, number) == 0 for number in range(300)])
    assert missing.any(), "nothing is left out"
    assert missing[1:].any(axis=0).all(), "some cards are never left out"
    assert not (missing[:-2] & missing[1:-1] & missing[2:]).any()


@given(plan=PLANS)
@MANY
def test_shares_follow_the_temperature_below_the_cap(plan: Plan):
    shares = plan.shares / SHARE
    assert plan.shares.sum() == plan.places * SHARE
    cap = max(plan.repeat_cap, plan.places / plan.cards) * plan.counts
    assert np.all(shares <= cap + 2 / SHARE)
    below = shares < cap - 2 / SHARE
    wanted = plan.counts.astype(float) ** plan.balance
    if below.any():
        factor = shares[below] / wanted[below]
        np.testing.assert_allclose(factor, factor[0], rtol=1e-5)
        # Those at the cap would have got more.
        assert np.all(factor[0] * wanted[~below] >= shares[~below] - 1e-3)


@pytest.mark.parametrize(
    ("counts", "options", "shares"),
    [
        ([90, 9, 1], {"balance": 1.0}, [90, 9, 1]),
        ([90, 9, 1], {"balance": 0.0, "repeat_cap": 1000}, [100 / 3] * 3),
        ([90, 9, 1], {"balance": 0.0, "repeat_cap": math.inf}, [100 / 3] * 3),
        ([81, 16, 3], {"balance": 0.5, "repeat_cap": 1000}, [61.09, 27.15, 11.76]),
        ([90, 9, 1], {"balance": 0.0, "repeat_cap": 4}, [60, 36, 4]),
        ([90, 9, 1], {"balance": 0.0, "repeat_cap": 1}, [90, 9, 1]),  # no room for any balance
        ([100], {"balance": 0.0}, [100]),
        ([1], {"batch_cards": 7, "repeat_cap": 2}, [7]),  # the cap gives way to the batch
        ([3, 1], {"batch_cards": 40, "balance": 0.0, "repeat_cap": 2}, [30, 10]),
        ([3, 1], {"batch_cards": 40, "balance": 0.0, "repeat_cap": 30}, [20, 20]),
    ],
)
def test_shares(counts: list[int], options: dict[str, Any], shares: list[float]):
    plan = natural(counts, **{"batch_cards": 10, **options})
    np.testing.assert_allclose(plan.shares / SHARE, shares, rtol=2e-3)
    assert times(plan, 3).sum() == pytest.approx(sum(shares), rel=2e-3)


@given(plan=PLANS)
@MANY
def test_weights_undo_the_balance(plan: Plan):
    """Weighted places are natural shares, and weights are 1 on average."""
    weighted = plan.weights * (plan.shares / SHARE)
    np.testing.assert_allclose(weighted / plan.places, plan.counts / plan.cards, rtol=1e-5)
    assert weighted.sum() / plan.places == pytest.approx(1, rel=1e-5)
    if plan.balance == 1:
        np.testing.assert_allclose(plan.weights, 1, rtol=1e-5)


@given(plan=PLANS, step=st.one_of(st.integers(0, 2000), st.integers(0, 10**9)))
@MANY
def test_a_batch_is_the_same_by_itself_and_in_any_process(plan: Plan, step: int):
    number, within = divmod(step, plan.steps_per_epoch)
    expected = dealt(plan, number).card.reshape(-1, plan.batch_cards)[within]
    np.testing.assert_array_equal(plan.batch(step).card, expected)
    again = replace(plan, counts=plan.counts.copy())  # nothing that was kept for the first plan
    np.testing.assert_array_equal(again.batch(step).card, expected)


def test_orders_differ_between_epochs_and_seeds():
    plan = natural([500, 300, 200], 50)
    orders = [dealt(plan, number).card for number in (0, 1, 2)]
    orders.append(dealt(replace(plan, seed=1), 0).card)
    for first in range(4):
        for second in range(first):
            # Two random orders of one stratum of 500, 300 and 200 agree in 0.4 % of places.
            assert (orders[first] == orders[second]).mean() < 0.03


def test_neighbouring_cards_are_parted():
    """No trace is left of the cards' order: neither within a batch nor between batches."""
    plan = natural([5000], 50)
    card = dealt(plan, 0).card
    for order in (card, card.reshape(100, 50).T.ravel()):
        assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.06
        assert (np.abs(np.diff(order)) == 1).sum() < 15
    batches = np.sort(card.reshape(100, 50))
    # 50 cards out of 5,000 leave gaps of 98 on average, as random ones do.
    assert 80 < np.diff(batches).std() < 115


def test_a_rare_stratum_meets_every_replica_and_every_other():
    plan = natural([2, 2, 31, 23, 17, 14, 11], 20)
    replicas, batches, together = set(), set(), 0
    for number in range(60):
        is_of = dealt(plan, number).stratum.reshape(5, 20)[..., None] == [0, 1]
        replicas |= set((np.nonzero(is_of[..., 0])[1] % 4).tolist())
        batches |= set(np.nonzero(is_of[..., 0])[0].tolist())
        together += int(is_of.any(axis=1).all(axis=1).any())
    assert replicas == {0, 1, 2, 3}
    assert batches == {0, 1, 2, 3, 4}
    assert 5 < together < 60


def test_a_training_run_of_fifty_million_records():
    """A batch a billion steps out takes no array of an epoch's length."""
    rng = np.random.default_rng(0)
    counts = rng.zipf(1.5, 20_000) % 100_000 + 1
    counts[0] += 50_000_000 - counts.sum()
    plan = Plan(counts=counts, batch_cards=4096, balance=0.5)
    batch = plan.batch(10**9)
    np.testing.assert_array_equal(
        batch.stratum, np.searchsorted(np.cumsum(counts), batch.card, side="right")
    )
    assert len(np.unique(batch.card)) > 4000
    got = np.bincount(batch.stratum, minlength=len(counts))
    assert is_rounded(got, plan.shares, SHARE * plan.steps_per_epoch)


def test_a_stream_stays_as_it_is():
    """A change of the arithmetic would change the data of runs that are resumed."""
    plan = Plan(counts=np.array([5, 3, 1]), batch_cards=4, seed=plan_seed("d", "train", 3))
    assert plan.batch(0).card.tolist() == [6, 8, 0, 3]
    assert plan.batch(12345).card.tolist() == [8, 0, 3, 6]


def test_seeds_of_plans_and_examples():
    identities = [("digest", "train", 0), ("digest", "train", 1), ("digest", "trai", "n0")]
    seeds = [plan_seed(*identity) for identity in identities]
    assert len(set(seeds)) == 3
    assert plan_seed("digest", "train", 0) == seeds[0]
    assert all(0 <= seed < 2**32 for seed in seeds)

    row = np.arange(256)
    many = [example_seeds(seed, np.int64(step), row) for seed in (1, 2) for step in range(200)]
    values = np.concatenate(many)
    assert values.min() >= 0
    assert values.max() < 2**32
    assert len(np.unique(values)) > len(values) - 10  # 2**32 allow for about one collision
    assert abs(values.mean() / 2**31 - 1) < 0.01
    bits = (values[:, None] >> np.arange(32)) & 1
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.01
    np.testing.assert_array_equal(
        example_seeds(7, np.int64(10**9), row)[5:9],
        example_seeds(7, np.int64(10**9), row[5:9]),
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"counts": []}, "every stratum needs a record, got counts []"),
        ({"counts": [3, 0]}, "every stratum needs a record, got counts [3 0]"),
        ({"batch_cards": 0}, "a batch must hold at least 1 record, got 0"),
        ({"balance": 1.5}, "balance must be 0 (uniform) to 1 (natural), got 1.5"),
        ({"balance": float("nan")}, "balance must be 0 (uniform) to 1 (natural), got nan"),
        ({"repeat_cap": 0.5}, "repeat_cap must be at least 1, got 0.5"),
        ({"repeat_cap": float("nan")}, "repeat_cap must be at least 1, got nan"),
    ],
)
def test_errors(options: dict[str, Any], sentence: str):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        natural(**{"counts": [3, 1], "batch_cards": 2, **options})
