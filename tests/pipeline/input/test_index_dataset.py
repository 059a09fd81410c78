"""The plan inside the graph: NumPy's numbers, dealt out to pipelines."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.input.index_dataset import (
    InputShard,
    TensorArrays,
    batch_positions,
    evaluation_records,
    training_records,
)
from pipeline.records.table import RecordTable
from pipeline.sampling.batch_order import replica_rows
from pipeline.sampling.buckets import BucketPlan
from pipeline.sampling.integer_math import NUMPY
from pipeline.sampling.phases import PhasedPlan
from pipeline.sampling.plan import BatchPlan, example_seeds
from tests.pipeline.sampling.test_buckets import PLANS as BUCKET_PLANS
from tests.pipeline.sampling.test_plan import EPOCHS, PLANS, dealt

pytestmark = pytest.mark.slow

ARRAYS = TensorArrays()


def table_of(counts: list[int], *, block_length: int = 1, remainder: int = 0) -> RecordTable:
    """A table of no files, whose strata of so many blocks lie behind each other."""
    units = np.array(counts, np.int64)
    sizes = units * block_length + remainder
    records = int(sizes.sum())
    return RecordTable(
        paths=("shard",),
        index_paths=("index",),
        index_starts=np.zeros((1, 4), np.int64),
        shard_ends=np.array([records]),
        offset=np.arange(records, dtype=np.int64),
        order=None,
        contiguous=np.ones(records, bool),
        categories=np.arange(len(counts)),
        first_records=np.cumsum(sizes) - sizes,
        counts=units,
        remainder=np.full(len(counts), remainder),
        block_length=block_length,
    )


def flat(dataset: tf.data.Dataset) -> Iterator[int]:
    for vector in dataset.as_numpy_iterator():
        yield from vector.tolist()


def phased(table: RecordTable, batch_units: int, phases: dict[int, float]) -> PhasedPlan:
    """A plan whose phases begin at the keys of a dict with alphas."""
    plans = [
        BatchPlan(counts=table.counts, batch_units=batch_units, seed=5, alpha=alpha)
        for alpha in phases.values()
    ]
    return PhasedPlan(plans=tuple(plans), first_steps=tuple(phases))


def batch_records(table: RecordTable, phases: PhasedPlan, step: int) -> np.ndarray:
    """Records of a global batch by NumPy, int64 [units, block_length]."""
    plan = phases.phase(step).plan
    epoch = plan.epoch(np.int64(step // plan.steps_per_epoch))
    first = table.first_of_units(plan.batch(step), epoch, NUMPY)
    return first[:, None] + np.arange(table.block_length)


@given(plan=PLANS, number=EPOCHS)
@settings(deadline=None, max_examples=25)
def test_tensorflow_computes_what_numpy_does(plan: BatchPlan, number: int):
    expected = dealt(plan, number)
    step, row = (tf.constant(each) for each in np.divmod(np.arange(plan.slots), plan.batch_units))
    rows = plan.rows(plan.epoch(tf.constant(number, tf.int64), ARRAYS), step, row, ARRAYS)
    np.testing.assert_array_equal(rows.unit, expected.unit)
    np.testing.assert_array_equal(rows.stratum, expected.stratum)
    assert rows.unit.dtype == rows.stratum.dtype == tf.int64


@given(plan=BUCKET_PLANS, first=st.sampled_from([0, 10**8]))
@settings(deadline=None, max_examples=15)
def test_tensorflow_finds_the_same_buckets(plan: BucketPlan, first: int):
    steps = first + np.arange(40)
    expected, found = plan.of_steps(steps), plan.of_steps(tf.constant(steps), ARRAYS)
    np.testing.assert_array_equal(found.bucket, expected.bucket)
    np.testing.assert_array_equal(found.step, expected.step)
    np.testing.assert_array_equal(
        plan.steps_before(tf.constant(steps), ARRAYS), plan.steps_before(steps)
    )
    assert found.bucket.dtype == found.step.dtype == tf.int64


@pytest.mark.parametrize("step", [0, 10**9])
def test_tensorflow_makes_the_same_seeds(step: int):
    row = np.arange(1000)
    made = example_seeds(2**32 - 1, tf.constant(step, tf.int64), tf.constant(row), ARRAYS)
    np.testing.assert_array_equal(made, example_seeds(2**32 - 1, np.int64(step), row))


TABLES = {
    "records": table_of([40, 17, 3, 1, 1]),
    "blocks": table_of([7, 6, 6], block_length=4, remainder=3),
    "one unit": table_of([1]),
    # More steps an epoch than are computed at once.
    "long": table_of([9000, 1001]),
}


@pytest.mark.parametrize(
    ("name", "batch_units", "start_step", "steps", "pipelines", "phases"),
    [
        ("records", 12, 0, 12, 1, {0: 1.0}),
        ("records", 12, 7, 9, 3, {0: 1.0}),
        ("records", 12, 10**9 + 1, 7, 2, {0: 1.0}),
        ("blocks", 8, 2, 11, 2, {0: 1.0}),
        ("one unit", 12, 0, 3, 6, {0: 1.0}),
        ("long", 12, 600, 300, 1, {0: 1.0}),
        # Epochs of 5 steps: phases that begin within an epoch, in the next step, with an epoch.
        ("records", 12, 0, 22, 1, {0: 1.0, 7: 0.5, 8: 0.2, 15: 0.0}),
        ("records", 12, 10**9 - 3, 8, 2, {0: 1.0, 7: 0.5, 10**9: 0.0}),
    ],
)
def test_pipelines_make_the_global_batches_together(
    name: str,
    batch_units: int,
    start_step: int,
    steps: int,
    pipelines: int,
    phases: dict[int, float],
):
    """Each with two replicas: its batches of a step follow each other."""
    table, replicas = TABLES[name], 2 * pipelines
    plan = phased(table, batch_units, phases)
    each = batch_units // replicas
    made: dict[tuple[int, int], list[int]] = {}
    for number in range(pipelines):
        part = InputShard.of(tf.distribute.InputContext(pipelines, number, replicas))
        records = flat(training_records(table, plan, part, start_step=start_step))
        positions = batch_positions(part, start_step=start_step).take(2 * steps)
        for step, replica in positions.as_numpy_iterator():
            assert (step, replica) not in made, "two pipelines make the same batch"
            made[step, replica] = [next(records) for _ in range(each * table.block_length)]
    assert made.keys() == {
        (step, replica)
        for step in range(start_step, start_step + steps)
        for replica in range(replicas)
    }
    for (step, replica), records in made.items():
        order = replica_rows(
            step, np.int64(replica), replicas=replicas, batch_units=batch_units, seed=plan.seed
        )
        assert records == batch_records(table, plan, step)[order].ravel().tolist()


@pytest.mark.parametrize(
    ("workers", "start_step", "phases"),
    [
        (2, 0, {0: 1.0}),
        (3, 8, {0: 1.0}),
        (3, 2, {0: 1.0, 2: 0.5, 7: 0.0}),
    ],
)
def test_workers_take_turns(workers: int, start_step: int, phases: dict[int, float]):
    """Under ParameterServerStrategy a worker learns its number at run time."""
    table = TABLES["records"]
    plan = phased(table, 12, phases)
    made = {}
    for number in range(workers):
        part = InputShard(workers=workers, worker=tf.constant(number, tf.int64))
        records = flat(training_records(table, plan, part, start_step=start_step))
        positions = batch_positions(part, start_step=start_step).take(4)
        for step, replica in positions.as_numpy_iterator():
            assert replica == 0
            assert (step - start_step) % workers == number
            made[step] = [next(records) for _ in range(12)]
    assert sorted(made) == list(range(start_step, start_step + 4 * workers))
    for step, records in made.items():
        order = replica_rows(step, np.int64(0), replicas=1, batch_units=12, seed=plan.seed)
        assert records == batch_records(table, plan, step)[order].ravel().tolist()


@pytest.mark.parametrize(
    ("pipelines", "replicas", "workers"), [(1, 1, 1), (1, 2, 1), (2, 4, 1), (1, 1, 3)]
)
def test_evaluation_takes_each_record_once(pipelines: int, replicas: int, workers: int):
    table, batch = TABLES["records"], 8
    steps = -(-len(table) // (batch * workers)) * workers
    made = {}
    for number in range(pipelines):
        fed = range(number * replicas // pipelines, (number + 1) * replicas // pipelines)
        for worker in range(workers):
            part = InputShard(replicas=replicas, replica_range=fed, workers=workers, worker=worker)
            dataset = evaluation_records(table, part, global_batch_size=batch, steps=steps)
            positions = batch_positions(part, start_step=0, steps=steps)
            shard_batches = steps // workers * len(fed)
            pairs = list(tf.data.Dataset.zip((positions, dataset)).take(2 * shard_batches))
            for first, again in zip(pairs[:shard_batches], pairs[shard_batches:], strict=True):
                tf.nest.map_structure(np.testing.assert_array_equal, again, first)
            for (step, replica), records in pairs[:shard_batches]:
                made[int(step), int(replica)] = records.numpy().tolist()
    assert sorted(made) == [(step, replica) for step in range(steps) for replica in range(replicas)]
    in_shard_order = [record for position in sorted(made) for record in made[position]]
    assert len(in_shard_order) == steps * batch
    assert in_shard_order[: len(table)] == list(range(len(table)))
    assert set(in_shard_order[len(table) :]) <= {len(table) - 1}


def test_shards_of_replicas():
    part = InputShard.of(tf.distribute.InputContext(3, 1, 6))
    assert (part.replicas, list(part.replica_range)) == (6, [2, 3])
    plan = BatchPlan(counts=np.array([30]), batch_units=12)
    step = tf.constant([[0], [10**9]], tf.int64)
    rows = part.rows(plan, step, np.array(part.replica_range, np.int64)).numpy()
    assert np.sort(rows).tolist() == [[[2, 8], [3, 9]]] * 2
