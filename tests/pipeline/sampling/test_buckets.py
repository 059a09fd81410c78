"""The plan of buckets: the bucket of each step, and the shares and records of its batches."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sampling.buckets import BucketPlan
from pipeline.sampling.plan import SLOT_PARTS, BatchPlan
from tests.pipeline.sampling.test_plan import is_rounded

MANY = settings(deadline=None, max_examples=100)


@st.composite
def bucket_plans(draw: st.DrawFn) -> BucketPlan:
    """Plans in which layouts are missing in some buckets, but every bucket and layout has units."""
    buckets, layouts = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    cells = st.one_of(st.just(0), st.integers(0, 40))
    counts = np.array(draw(st.lists(cells, min_size=buckets * layouts, max_size=buckets * layouts)))
    counts = counts.reshape(buckets, layouts)
    counts[~counts.any(axis=1), draw(st.integers(0, layouts - 1))] = 1
    return BucketPlan(
        counts=counts[:, counts.any(axis=0)],
        batch_units=draw(st.sampled_from([1, 2, 3, 4, 12, 32])),
        seed=draw(st.integers(0, 2**32 - 1)),
        alpha=draw(st.sampled_from([0, 0.5, 1])),
        repeat_cap=draw(st.sampled_from([1, 2.5, 1000.0])),
    )


PLANS = bucket_plans()


def natural(counts: list[list[int]], batch_units: int, **options: Any) -> BucketPlan:
    return BucketPlan(counts=np.array(counts), batch_units=batch_units, **options)


def is_of_bucket(plan: BucketPlan, steps: int, start: int = 0) -> np.ndarray:
    """Tells for each step whether it is of each bucket: int64 [steps, buckets]."""
    bucket = plan.of_steps(start + np.arange(steps)).bucket
    return (bucket[:, None] == np.arange(len(plan.counts))).astype(np.int64)


@given(plan=PLANS, start=st.sampled_from([0, 1, 17, 10**8]))
@MANY
def test_steps_of_a_bucket_are_counted_as_by_walking(plan: BucketPlan, start: int):
    """Every step has one bucket, and the numbers of a bucket's steps have no gap."""
    steps = start + np.arange(3 * plan.steps_per_epoch + 5)
    found = plan.of_steps(steps)
    before = plan.steps_before(np.append(steps, steps[-1] + 1))
    assert before[0].sum() == start
    is_of = (found.bucket[:, None] == np.arange(len(plan.counts))).astype(np.int64)
    np.testing.assert_array_equal(is_of.sum(axis=1), 1)
    np.testing.assert_array_equal(np.diff(before, axis=0), is_of)
    np.testing.assert_array_equal(found.step, (before[:-1] * is_of).sum(axis=1))


@given(plan=PLANS, first=st.sampled_from([0, 5, 10**6]))
@MANY
def test_an_epoch_has_the_share_of_each_bucket(plan: BucketPlan, first: int):
    """Rounded down or up; and roundings do not add up over epochs."""
    steps, epochs = plan.steps_per_epoch, 20
    is_of = is_of_bucket(plan, epochs * steps, first * steps).reshape(epochs, steps, -1)
    of_epochs = is_of.sum(axis=1)
    assert plan.allocation.sum() == steps * SLOT_PARTS
    assert is_rounded(of_epochs, plan.allocation, SLOT_PARTS)
    wanted = np.arange(1, epochs + 1)[:, None] * plan.allocation / SLOT_PARTS
    assert np.abs(np.cumsum(of_epochs, axis=0) - wanted).max() < 2


@given(counts=st.lists(st.integers(1, 200), min_size=1, max_size=8), size=st.integers(1, 64))
@MANY
def test_natural_shares_of_buckets_are_those_of_their_records(counts: list[int], size: int):
    plan = natural([[count] for count in counts], size)
    shares = plan.allocation / SLOT_PARTS / plan.steps_per_epoch
    np.testing.assert_allclose(shares, np.array(counts) / sum(counts), atol=1e-4)


@given(plan=PLANS)
@MANY
def test_layouts_get_their_slots_over_all_buckets(plan: BucketPlan):
    """Balance and cap decide as without buckets; a layout's slots are divided as its units are."""
    per_step = np.zeros(plan.counts.shape)  # slots of each layout in a step of each bucket
    for bucket, inner in enumerate(plan.plans):
        own = plan.counts[bucket] > 0
        np.testing.assert_array_equal(inner.counts, plan.counts[bucket][own])
        per_step[bucket, own] = inner.allocation / SLOT_PARTS / inner.steps_per_epoch
    slots = per_step * (plan.allocation / SLOT_PARTS)[:, None]
    of_layout = plan.layout_plan.allocation / SLOT_PARTS
    np.testing.assert_allclose(slots.sum(axis=0), of_layout, rtol=1e-3)
    divided = plan.counts / plan.counts.sum(axis=0) * of_layout
    np.testing.assert_allclose(slots, divided, rtol=1e-3)


@given(plan=PLANS, start=st.sampled_from([0, 3, 10**7]))
@settings(deadline=None, max_examples=40)
def test_batches_hold_the_shares_of_their_bucket(plan: BucketPlan, start: int):
    """Within one record of each layout's share, and every replica's part as well."""
    for step in range(start, start + 12):
        bucket, units = plan.batch(step)
        inner = plan.plans[bucket]
        for replicas in (1, 2, 3):
            if plan.batch_units % replicas:
                continue
            for replica in range(replicas):
                rows = units.stratum[replica::replicas]
                got = np.bincount(rows, minlength=len(inner.counts))
                denominator = SLOT_PARTS * inner.steps_per_epoch * replicas
                assert is_rounded(got, inner.allocation, denominator)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_every_record_comes_once_in_an_epoch_of_its_bucket(alpha: float):
    """With balance the records of a layout come equally often, give or take one."""
    plan = natural([[20, 12], [3, 5], [0, 16]], 8, alpha=alpha)
    steps = 40 * plan.steps_per_epoch
    found = plan.of_steps(np.arange(steps))
    for bucket, inner in enumerate(plan.plans):
        own = np.flatnonzero(found.bucket == bucket)
        assert len(own) >= 2 * inner.steps_per_epoch
        stratum = np.repeat(np.arange(len(inner.counts)), inner.counts)
        for first in range(0, len(own) // inner.steps_per_epoch):
            epoch = own[first * inner.steps_per_epoch :][: inner.steps_per_epoch]
            units = np.concatenate([plan.batch(int(step))[1].unit for step in epoch])
            often = np.bincount(units, minlength=inner.units)
            if alpha == 1:
                np.testing.assert_array_equal(often, 1)
            of_stratum = np.bincount(stratum, often)
            assert is_rounded(often, of_stratum[stratum], inner.counts[stratum])


def test_a_tiny_bucket_gets_a_step_now_and_then():
    """5 of 1,005 records in batches of 64 get a step every 13.4 epochs on average."""
    plan = natural([[1000], [5]], 64)
    steps = np.flatnonzero(is_of_bucket(plan, 400 * plan.steps_per_epoch)[:, 1])
    epochs = np.diff(steps) / plan.steps_per_epoch
    assert 400 * 5 / 67 - 1 <= len(steps) <= 400 * 5 / 67 + 1
    assert 7 < epochs.min() < epochs.max() < 22
    _, units = plan.batch(int(steps[0]))
    assert sorted(np.bincount(units.unit).tolist()) == [12, 13, 13, 13, 13]


def test_a_bucket_of_one_record_among_fifty_million_is_not_dropped():
    counts = np.array([[1], [50_000_000 - 1]])
    plan = BucketPlan(counts=counts, batch_units=4096)
    assert plan.allocation[0] == SLOT_PARTS // 4096
    assert plan.steps_before(np.array([plan.steps_per_epoch * 4096 * 3]))[0, 0] in (2, 3, 4)
    whole = BucketPlan(counts=counts, batch_units=1 << 22)  # its share of a step is below 2**-20
    assert whole.allocation[0] == 1


def test_buckets_take_turns():
    """No bucket of a third of the steps waits long for the next."""
    plan = natural([[4000], [4000], [4000]], 32)
    is_of = is_of_bucket(plan, 2 * plan.steps_per_epoch)
    for bucket in range(3):
        assert np.diff(np.flatnonzero(is_of[:, bucket])).max() <= 8


def test_a_single_bucket_gets_every_step():
    plan = natural([[30, 11]], 8, seed=5)
    assert plan.of_steps(np.arange(20)).bucket.tolist() == [0] * 20
    assert plan.of_steps(np.arange(20)).step.tolist() == list(range(20))
    np.testing.assert_array_equal(plan.plans[0].allocation, plan.layout_plan.allocation)


def test_the_order_stays_as_it_is():
    """A change of it would change the data of runs that are resumed."""
    plan = natural([[40, 8], [20, 1], [0, 3]], 12, seed=7, alpha=0.5)
    assert plan.of_steps(np.arange(12)).bucket.tolist() == [0, 0, 2, 1, 0, 0, 0, 0, 0, 1, 1, 0]
    bucket, units = plan.batch(3)
    assert bucket == 1
    assert units.unit.tolist() == [20, 20, 5, 4, 3, 9, 1, 2, 7, 0, 6, 8]


def test_an_empty_bucket_is_refused():
    with pytest.raises(ValueError, match=re.escape("needs a record, got counts [[1], [0]]")):
        natural([[1], [0]], 4)


def test_shares_replace_balance():
    plan = BatchPlan(counts=np.array([6, 2]), batch_units=8, alpha=0, shares=np.array([1.0, 3.0]))
    assert (plan.allocation / SLOT_PARTS).tolist() == [2, 6]
