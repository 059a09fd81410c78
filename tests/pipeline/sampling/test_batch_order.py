"""The order within a batch: any part of it is a fair sample."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sampling.batch_order import replica_rows, van_der_corput_order
from pipeline.sampling.plan import BatchPlan
from tests.pipeline.sampling.test_plan import EPOCHS, PLANS, SLOT_PARTS, dealt, is_rounded

SIZES = (*range(1, 49), 60, 64, 96, 127, 128, 254, 256, 448, 960, 1024)


def equal_parts(size: int) -> list[int]:
    return [parts for parts in range(1, size + 1) if size % parts == 0]


def discrepancy(order: np.ndarray, taken: int) -> float:
    """Measures how far the first rows of an order are off their share of any stratum.

    A stratum is an interval of rows, wherever it begins and ends.
    """
    is_taken = np.zeros(len(order))
    is_taken[order[:taken]] = 1
    surplus = np.cumsum(is_taken) - np.arange(1, len(order) + 1) * (taken / len(order))
    return float(max(surplus.max(), 0) - min(surplus.min(), 0))


def test_order_of_eight():
    assert van_der_corput_order(8).tolist() == [0, 4, 2, 6, 1, 5, 3, 7]


@pytest.mark.parametrize("size", SIZES)
def test_equal_parts_are_fair(size: int):
    order = van_der_corput_order(size)
    assert sorted(order) == list(range(size))
    for parts in equal_parts(size):
        length = size // parts
        worst = max(discrepancy(np.roll(order, -at), length) for at in range(0, size, length))
        assert worst < (1 if (parts & (parts - 1)) == 0 else 4), parts


@pytest.mark.parametrize("size", [size for size in SIZES if size < 300])
def test_first_rows_are_fair(size: int):
    order = van_der_corput_order(size)
    assert max(discrepancy(order, taken) for taken in range(1, size + 1)) < 5


@pytest.mark.parametrize("replicas", equal_parts(24))
def test_slices_of_replicas_are_every_rth_row(replicas: int):
    step = np.arange(5)[:, None]
    rows = replica_rows(step, np.arange(replicas), replicas=replicas, batch_units=24, seed=3)
    assert rows.shape == (5, replicas, 24 // replicas)
    for own in rows:
        for replica, row in enumerate(own):
            assert sorted(row) == list(range(replica, 24, replicas))


@given(plan=PLANS, number=EPOCHS, replicas=st.sampled_from([1, 2, 3]))
@settings(deadline=None, max_examples=60)
def test_halves_of_slices_are_fair(plan: BatchPlan, number: int, replicas: int):
    """And quarters: within one of the share that a stratum has of the epoch."""
    if plan.batch_units % replicas:
        return
    rows, size = plan.batch_units // replicas, plan.batch_units
    steps = number * plan.steps_per_epoch + np.arange(plan.steps_per_epoch)
    stratum = dealt(plan, number).stratum.reshape(-1, size)
    for replica in range(replicas):
        order = replica_rows(
            steps, np.int64(replica), replicas=replicas, batch_units=size, seed=plan.seed
        )
        in_shard_order = np.take_along_axis(stratum, order, axis=1)
        for parts in (each for each in (1, 2, 4) if rows % each == 0):
            part = in_shard_order.reshape(-1, rows // parts)[..., None] == np.arange(
                len(plan.counts)
            )
            denominator = SLOT_PARTS * plan.steps_per_epoch * replicas * parts
            assert is_rounded(part.sum(axis=1), plan.allocation, denominator)


def test_every_position_gets_each_stratum_at_its_share():
    """Also the first, although rare strata are as likely to be dealt first as common ones."""
    plan, epochs = BatchPlan(counts=np.array([80, *[2] * 20]), batch_units=12, seed=1), 400
    stratum = np.array([dealt(plan, number).stratum for number in range(epochs)]).reshape(-1, 12)
    steps = np.arange(len(stratum))
    order = replica_rows(steps, np.int64(0), replicas=1, batch_units=12, seed=plan.seed)
    is_common = np.take_along_axis(stratum, order, axis=1) == 0
    share = 80 / 120
    error = 5 * math.sqrt(share * (1 - share) / len(steps))
    np.testing.assert_allclose(is_common.mean(axis=0), share, atol=error)


def test_the_order_stays_as_it_is():
    """A change of it would change the data of runs that are resumed."""
    order = replica_rows(np.array([0, 12345]), np.int64(1), replicas=2, batch_units=12, seed=7)
    assert order.tolist() == [[9, 1, 5, 11, 3, 7], [11, 3, 7, 1, 5, 9]]
