"""The plan of global batches: shares, orders and repeats, over whole epochs at once."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sampling.integer_math import NUMPY, sum_of_floors
from pipeline.sampling.plan import (
    SLOT_PARTS,
    BatchPlan,
    BatchUnits,
    draw_of_slot,
    example_seeds,
    plan_seed,
    visits_below,
)

PLANS = st.builds(
    BatchPlan,
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=8).map(np.array),
    batch_units=st.sampled_from([1, 2, 3, 4, 6, 12, 32, 60]),
    seed=st.integers(0, 2**32 - 1),
    alpha=st.sampled_from([0, 0.3, 0.5, 1]),
    repeat_cap=st.sampled_from([1, 2.5, 8, 1000.0, math.inf]),
)
EPOCHS = st.one_of(st.integers(0, 20), st.integers(0, 10**6))
MANY = settings(deadline=None, max_examples=150)


def natural(counts: list[int], batch_units: int, **options: Any) -> BatchPlan:
    return BatchPlan(counts=np.array(counts), batch_units=batch_units, **options)


def dealt(plan: BatchPlan, number: int) -> BatchUnits:
    """A whole epoch in time order; arrays of shape [slots]."""
    step, row = np.divmod(np.arange(plan.slots), plan.batch_units)
    return plan.rows(plan.epoch(np.int64(number)), step, row)


def times(plan: BatchPlan, number: int) -> np.ndarray:
    """Counts how often each unit comes in an epoch."""
    return np.bincount(dealt(plan, number).unit, minlength=plan.units)


def strata(plan: BatchPlan) -> np.ndarray:
    """Each unit's stratum."""
    return np.repeat(np.arange(len(plan.counts)), plan.counts)


def is_rounded(counts: np.ndarray, numerator: np.ndarray, denominator: int) -> bool:
    """Returns whether integers are the floor or ceiling of fractions."""
    return bool(np.all(np.abs(counts * denominator - numerator) < denominator))


@given(plan=PLANS, number=EPOCHS, replicas=st.sampled_from([1, 2, 3, 4]))
@MANY
def test_strata_are_even_in_every_batch_and_replica(plan: BatchPlan, number: int, replicas: int):
    """Within one of the share that a stratum has of the epoch, of each batch, of each slice."""
    stratum = dealt(plan, number).stratum.reshape(plan.steps_per_epoch, plan.batch_units)
    is_of = stratum[..., None] == np.arange(len(plan.counts))
    assert is_rounded(is_of.sum(axis=(0, 1)), plan.allocation, SLOT_PARTS)
    assert is_rounded(is_of.sum(axis=1), plan.allocation, SLOT_PARTS * plan.steps_per_epoch)
    if plan.batch_units % replicas == 0:
        for replica in range(replicas):
            in_slice = is_of[:, replica::replicas].sum(axis=1)
            assert is_rounded(
                in_slice, plan.allocation, SLOT_PARTS * plan.steps_per_epoch * replicas
            )


@given(plan=PLANS, number=EPOCHS)
@MANY
def test_units_of_a_stratum_come_equally_often_and_far_apart(plan: BatchPlan, number: int):
    rows = dealt(plan, number)
    np.testing.assert_array_equal(strata(plan)[rows.unit], rows.stratum)
    for stratum, count in enumerate(plan.counts):
        in_time = rows.unit[rows.stratum == stratum]
        often = np.bincount(in_time, minlength=plan.units)[strata(plan) == stratum]
        assert is_rounded(often, np.full(count, len(in_time)), count)
        # Of any `count` neighbors, each is another unit.
        np.testing.assert_array_equal(in_time[count:], in_time[:-count])
        assert len(set(in_time[:count].tolist())) == min(count, len(in_time))


@given(counts=st.lists(st.integers(1, 60), min_size=1, max_size=8), steps=st.integers(1, 9))
@MANY
def test_natural_shares_that_fill_their_batches_deal_each_unit_once(counts: list[int], steps: int):
    counts[0] += -sum(counts) % steps
    plan = natural(counts, sum(counts) // steps)
    assert (plan.steps_per_epoch, plan.slots) == (steps, plan.units)
    for number in (0, 1, 77):
        np.testing.assert_array_equal(times(plan, number), 1)


@pytest.mark.slow
@given(plan=PLANS, start=st.sampled_from([0, 1, 5, 1000]))
@settings(deadline=None, max_examples=40)
def test_no_unit_is_left_behind_over_epochs(plan: BatchPlan, start: int):
    """The units that an epoch leaves out, or deals once more, move on through the stratum."""
    shares = plan.allocation / SLOT_PARTS
    share = (shares / plan.counts)[strata(plan)]
    total = np.zeros(plan.units, np.int64)
    for epochs in range(1, 41):
        total += times(plan, start + epochs - 1)
        of_stratum = np.bincount(strata(plan), total)
        # Roundings of a stratum's places do not add up, nor do those of its units.
        assert np.abs(of_stratum - epochs * shares).max() < 3
        assert is_rounded(total, of_stratum[strata(plan)], plan.counts[strata(plan)])
        assert np.abs(total - epochs * share).max() < 4


@pytest.mark.parametrize(
    ("counts", "batch_units"),
    [
        ([1] * 9, 5),  # 4 of 9 places are lost in every epoch
        ([2] * 40 + [1], 41),
        ([50, 30, 10, 5, 2, 1, 1], 50),
        ([7, 7], 8),
        ([15], 8),
    ],
)
def test_drop_remainder_misses_no_unit_three_times_in_a_row(counts: list[int], batch_units: int):
    plan = natural(counts, batch_units)
    missing = np.array([times(plan, number) == 0 for number in range(300)])
    assert missing.any(), "nothing is left out"
    assert missing[1:].any(axis=0).all(), "some units are never left out"
    assert not (missing[:-2] & missing[1:-1] & missing[2:]).any()


@given(plan=PLANS)
@MANY
def test_shares_follow_alpha_below_the_cap(plan: BatchPlan):
    shares = plan.allocation / SLOT_PARTS
    assert plan.allocation.sum() == plan.slots * SLOT_PARTS
    cap = max(plan.repeat_cap, plan.slots / plan.units) * plan.counts
    assert np.all(shares <= cap + 2 / SLOT_PARTS)
    below = shares < cap - 2 / SLOT_PARTS
    wanted = plan.counts.astype(float) ** plan.alpha
    if below.any():
        factor = shares[below] / wanted[below]
        np.testing.assert_allclose(factor, factor[0], rtol=1e-5)
        # Those at the cap would have got more.
        assert np.all(factor[0] * wanted[~below] >= shares[~below] - 1e-3)


@pytest.mark.parametrize(
    ("counts", "options", "shares"),
    [
        ([90, 9, 1], {"alpha": 1.0}, [90, 9, 1]),
        ([90, 9, 1], {"alpha": 0.0, "repeat_cap": 1000}, [100 / 3] * 3),
        ([90, 9, 1], {"alpha": 0.0, "repeat_cap": math.inf}, [100 / 3] * 3),
        ([81, 16, 3], {"alpha": 0.5, "repeat_cap": 1000}, [61.09, 27.15, 11.76]),
        ([90, 9, 1], {"alpha": 0.0, "repeat_cap": 4}, [60, 36, 4]),
        ([90, 9, 1], {"alpha": 0.0, "repeat_cap": 1}, [90, 9, 1]),  # no room for any balance
        ([100], {"alpha": 0.0}, [100]),
        ([1], {"batch_units": 7, "repeat_cap": 2}, [7]),  # the cap gives way to the batch
        ([3, 1], {"batch_units": 40, "alpha": 0.0, "repeat_cap": 2}, [30, 10]),
        ([3, 1], {"batch_units": 40, "alpha": 0.0, "repeat_cap": 30}, [20, 20]),
    ],
)
def test_shares(counts: list[int], options: dict[str, Any], shares: list[float]):
    plan = natural(counts, **{"batch_units": 10, **options})
    np.testing.assert_allclose(plan.allocation / SLOT_PARTS, shares, rtol=2e-3)
    assert times(plan, 3).sum() == pytest.approx(sum(shares), rel=2e-3)


@given(plan=PLANS)
@MANY
def test_weights_undo_the_balance(plan: BatchPlan):
    """Weighted places are natural shares, and weights are 1 on average."""
    weighted = plan.weights * (plan.allocation / SLOT_PARTS)
    np.testing.assert_allclose(weighted / plan.slots, plan.counts / plan.units, rtol=1e-5)
    assert weighted.sum() / plan.slots == pytest.approx(1, rel=1e-5)
    if plan.alpha == 1:
        np.testing.assert_allclose(plan.weights, 1, rtol=1e-5)


@given(plan=PLANS, step=st.one_of(st.integers(0, 2000), st.integers(0, 10**9)))
@MANY
def test_a_batch_is_the_same_by_itself_and_in_any_process(plan: BatchPlan, step: int):
    number, within = divmod(step, plan.steps_per_epoch)
    expected = dealt(plan, number).unit.reshape(-1, plan.batch_units)[within]
    np.testing.assert_array_equal(plan.batch(step).unit, expected)
    again = replace(plan, counts=plan.counts.copy())  # nothing that was kept for the first plan
    np.testing.assert_array_equal(again.batch(step).unit, expected)


def test_orders_differ_between_epochs_and_seeds():
    plan = natural([500, 300, 200], 50)
    orders = [dealt(plan, number).unit for number in (0, 1, 2)]
    orders.append(dealt(replace(plan, seed=1), 0).unit)
    for first in range(4):
        for second in range(first):
            # Two random orders of one stratum of 500, 300 and 200 agree in 0.4 % of slots.
            assert (orders[first] == orders[second]).mean() < 0.03


def test_neighboring_units_are_parted():
    """No trace is left of the units' order: neither within a batch nor between batches."""
    plan = natural([5000], 50)
    unit = dealt(plan, 0).unit
    for order in (unit, unit.reshape(100, 50).T.ravel()):
        assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.06
        assert (np.abs(np.diff(order)) == 1).sum() < 15
    batches = np.sort(unit.reshape(100, 50))
    # 50 units out of 5,000 leave gaps of 98 on average, as random ones do.
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
    plan = BatchPlan(counts=counts, batch_units=4096, alpha=0.5)
    batch = plan.batch(10**9)
    np.testing.assert_array_equal(
        batch.stratum, np.searchsorted(np.cumsum(counts), batch.unit, side="right")
    )
    assert len(np.unique(batch.unit)) > 4000
    got = np.bincount(batch.stratum, minlength=len(counts))
    assert is_rounded(got, plan.allocation, SLOT_PARTS * plan.steps_per_epoch)


@given(
    count=st.integers(0, 60),
    stride=st.integers(1, 40),
    start=st.integers(-50, 50),
    columns=st.integers(1, 20),
    share=st.floats(0, 1),
)
@MANY
def test_visits_are_counted_as_by_walking(
    count: int, stride: int, start: int, columns: int, share: float
):
    bound = round(share * columns)
    walked = sum((start + stride * i) % columns < bound for i in range(count))
    counts = (np.int64(each) for each in (count, start, bound))
    length, first, limit = counts
    assert visits_below(length, stride, first, limit, columns) == walked


@given(
    count=st.integers(0, 60),
    factor=st.integers(0, 100),
    offsets=st.lists(st.integers(-100, 100), min_size=1, max_size=3),
    modulus=st.integers(1, 50),
)
@MANY
def test_floors_are_summed_as_one_by_one(count: int, factor: int, offsets: list[int], modulus: int):
    expected = [sum((factor * i + offset) // modulus for i in range(count)) for offset in offsets]
    got = sum_of_floors(np.int64(count), factor, np.array(offsets), modulus, NUMPY)
    assert got.tolist() == expected


@given(plan=PLANS, number=EPOCHS)
@MANY
def test_batches_are_columns_of_the_slots_in_their_lines(plan: BatchPlan, number: int):
    """The table of the module's docstring, written out slot by slot."""
    epoch = plan.epoch(np.int64(number))
    steps = plan.steps_per_epoch
    slots = np.diff(epoch.slot_ends, prepend=0)
    table = np.repeat(epoch.strata, slots).reshape(plan.batch_units, steps)
    columns = (int(epoch.key) + plan.stride * np.arange(steps)) % steps
    stratum = dealt(plan, number).stratum.reshape(steps, plan.batch_units)
    np.testing.assert_array_equal(stratum, table.T[columns])
    assert sorted(columns) == list(range(steps))


@given(
    steps=st.integers(1, 12),
    rows=st.integers(1, 9),
    first_column=st.integers(0, 2**32),
    data=st.data(),
)
@MANY
def test_draws_count_the_slots_in_the_order_of_steps(
    steps: int, rows: int, first_column: int, data: st.DataObject
):
    stride = data.draw(st.sampled_from([n for n in range(1, 2 * steps) if math.gcd(n, steps) == 1]))
    first = data.draw(st.integers(0, steps * rows - 1))
    stop = data.draw(st.integers(first + 1, steps * rows))
    walk = [
        (step, row)
        for step in range(steps)
        for row in range(rows)
        if first <= row * steps + (first_column + stride * step) % steps < stop
    ]
    step, row = np.array(walk).T
    draws = draw_of_slot(
        step,
        row,
        first_slot=np.full_like(step, first),
        slots=np.full_like(step, stop - first),
        first_column=first_column % steps,
        stride=stride,
        steps=steps,
    )
    assert draws.tolist() == list(range(stop - first))


def test_the_example_of_the_docstring():
    """3 steps take columns 1, 0 and 2, in which stratum A has slots 1 4, 0 3 6 and 2 5."""
    slot = np.array([1, 4, 0, 3, 6, 2, 5])
    draws = draw_of_slot(
        np.array([0, 0, 1, 1, 1, 2, 2]),
        slot // 3,
        first_slot=np.int64(0),
        slots=np.int64(7),
        first_column=1,
        stride=2,
        steps=3,
    )
    assert draws.tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_a_stream_stays_as_it_is():
    """A change of the arithmetic would change the data of runs that are resumed."""
    plan = BatchPlan(counts=np.array([5, 3, 1]), batch_units=4, seed=plan_seed("d", "train", 3))
    assert plan.batch(0).unit.tolist() == [6, 8, 0, 3]
    assert plan.batch(12345).unit.tolist() == [8, 0, 3, 6]


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
        ({"batch_units": 0}, "a batch must hold at least 1 record, got 0"),
        ({"alpha": 1.5}, "alpha must be 0 (uniform) to 1 (natural), got 1.5"),
        ({"alpha": float("nan")}, "alpha must be 0 (uniform) to 1 (natural), got nan"),
        ({"repeat_cap": 0.5}, "repeat_cap must be at least 1, got 0.5"),
        ({"repeat_cap": float("nan")}, "repeat_cap must be at least 1, got nan"),
    ],
)
def test_errors(options: dict[str, Any], sentence: str):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        natural(**{"counts": [3, 1], "batch_units": 2, **options})
