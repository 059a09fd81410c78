"""Datasets of record numbers: the plan, computed inside the graph from the step on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import tensorflow as tf

from pipeline.records.table import RecordTable
from pipeline.sampling.batch_order import replica_rows
from pipeline.sampling.phases import FOREVER, Phase, PhasedPlan
from pipeline.sampling.plan import BatchPlan

_ROWS_AT_ONCE = 8192  # for which the plan is computed: see `training_records`


class TensorArrays:
    """`pipeline.sampling.integer_math.Arrays` of TensorFlow."""

    # Everything is int64, also where TensorFlow would choose int32: Python numbers, argsort.

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return tf.where(condition, tf.cast(a, tf.int64), tf.cast(b, tf.int64))

    def searchsorted(self, ascending: Any, values: Any) -> Any:
        return tf.searchsorted(ascending, values, side="right", out_type=tf.int64)

    def take(self, array: Any, positions: Any) -> Any:
        return tf.gather(array, positions)

    def argsort(self, values: Any) -> Any:
        return tf.cast(tf.argsort(values), tf.int64)

    def cumsum(self, values: Any) -> Any:
        return tf.cumsum(values)

    def shift_right(self, values: Any, bits: int) -> Any:
        return tf.bitwise.right_shift(
            tf.convert_to_tensor(values, tf.int64), tf.constant(bits, tf.int64)
        )

    def iterate(self, times: int, body: Callable[[Any, Any], Any], values: Any) -> Any:
        def step(number: Any, values: Any) -> tuple[Any, Any]:
            return number + 1, body(number, values)

        # A loop of the graph, which then holds the ops of one round and not of all of them.
        start = tf.constant(0, tf.int64)
        return tf.while_loop(lambda number, _: number < times, step, [start, values])[1]


@dataclass(frozen=True, kw_only=True)
class InputShard:
    """The part of the global batches that one input pipeline makes.

    Attributes:
      replicas: number of replicas that share a global batch.
      replica_range: the replicas that the pipeline feeds. With range(2, 4) it makes, of each
        global batch, first the batch of replica 2 and then that of replica 3.
      workers: number of pipelines, where each makes every `workers`-th global batch.
      worker: the index of this pipeline among them; a tensor where it is known at run time only.
    """

    replicas: int = 1
    replica_range: range = range(1)
    workers: int = 1
    worker: Any = 0

    def __post_init__(self) -> None:
        if not set(self.replica_range) <= set(range(self.replicas)) or not self.replica_range:
            raise ValueError(
                f"replica_range must be some of {self.replicas} replicas, got {self.replica_range}"
            )
        if self.workers < 1:
            raise ValueError(f"workers must be at least 1, got {self.workers}")

    @classmethod
    def of(cls, context: tf.distribute.InputContext) -> "InputShard":
        """Makes the shard of a pipeline that feeds one or more of the replicas in sync.

        Raises:
          ValueError: the pipelines can't feed equally many.
        """
        replicas, pipelines = context.num_replicas_in_sync, context.num_input_pipelines
        if replicas % pipelines:
            raise ValueError(
                f"{pipelines} input pipelines can't feed {replicas} replicas evenly: choose a "
                f"multiple of {pipelines} for the InputContext's num_replicas_in_sync"
            )
        fed = replicas // pipelines
        first = context.input_pipeline_id * fed
        return cls(replicas=replicas, replica_range=range(first, first + fed))

    def rows(self, plan: BatchPlan | PhasedPlan, step: tf.Tensor, replica: Any) -> tf.Tensor:
        """Computes the rows of global batches of units that a replica gets, in their order.

        Args:
          plan: the plan.
          step: int64 [...], global step over all epochs.
          replica: int64 [...], which broadcasts with `step`.

        Returns:
          int64 [..., batch_units / replicas].
        """
        return replica_rows(
            step,
            replica,
            replicas=self.replicas,
            batch_units=plan.batch_units,
            seed=plan.seed,
            xp=TensorArrays(),
        )


def training_records(
    table: RecordTable, plan: PhasedPlan, shard: InputShard, *, start_step: int
) -> tf.data.Dataset:
    """Makes an infinite dataset of the numbers of the records in each batch, from a step on.

    The plan is computed for some thousands of rows at once: for a batch of 32 rows alone, starting
    TensorFlow's ops would take several times as long as the arithmetic.

    Returns:
      Vectors, int64 [global_batch_size / replicas], one for each batch of the shard.
    """

    def of_phase(phase: Phase) -> tf.data.Dataset:
        # A worker goes on where its turns of the phase before have ended. If 3 workers start at
        # step 10, worker 1 makes 11 14 17 20. In a phase from step 15 on, it is the worker whose
        # turns are 17 20, which is worker 2 of a start at 15: (1 + 10 - 15) % 3 = 2.
        turn = (shard.worker + start_step - phase.steps.start) % shard.workers
        return _phase_records(table, phase, replace(shard, worker=turn))

    datasets = map(of_phase, plan.from_step(start_step))
    return reduce(lambda before, phase: before.concatenate(phase), datasets)


def _phase_records(table: RecordTable, phase: Phase, shard: InputShard) -> tf.data.Dataset:
    """Makes the dataset of `training_records` for the steps of one phase."""
    plan, start_step, stop_step = phase.plan, phase.steps.start, phase.steps.stop
    steps = plan.steps_per_epoch
    replicas = np.array(shard.replica_range, np.int64)
    replica_units = plan.batch_units // shard.replicas
    step_units = len(replicas) * replica_units
    arrays = TensorArrays()

    def of_epoch(number: tf.Tensor) -> tf.data.Dataset:
        epoch = plan.epoch(number, arrays)
        first = tf.maximum(start_step - number * steps, 0)
        # Of the steps from the very first on, every `workers`-th is this worker's. With 8 steps per
        # epoch, worker 1 of 3 that start at step 10 makes 11 14 17 20: steps 3 and 6 of epoch 1,
        # steps 1 and 4 of epoch 2.
        first = first + (start_step + shard.worker - number * steps - first) % shard.workers

        def of_steps(step: tf.Tensor) -> tf.Tensor:
            # Step by step and, of each step, replica by replica: `batch_positions` has this order,
            # and the two are zipped.
            row = tf.reshape(shard.rows(plan, number * steps + step[:, None], replicas), [-1])
            units = plan.rows(epoch, tf.repeat(step, step_units), row, arrays)
            in_block = tf.range(table.block_length, dtype=tf.int64)
            records = table.first_of_units(units, epoch, arrays)[:, None] + in_block
            return tf.reshape(records, [-1, replica_units * table.block_length])

        # Batches of 32 rows are planned 256 at a time; one of 10,000 rows is planned alone.
        at_once = max(1, _ROWS_AT_ONCE // step_units)
        last = tf.minimum(stop_step - number * steps, steps)
        batches = tf.data.Dataset.range(first, last, shard.workers).batch(at_once).map(of_steps)
        return batches.flat_map(tf.data.Dataset.from_tensor_slices)

    epochs = tf.data.Dataset.range(start_step // steps, -(-stop_step // steps))
    return epochs.flat_map(of_epoch)


def evaluation_records(
    table: RecordTable, shard: InputShard, *, global_batch_size: int, steps: int | None
) -> tf.data.Dataset:
    """Makes an infinite dataset of the numbers of the records in each batch, in shard order.

    A replica's rows of a global batch are neighbors. Rows behind the last record hold it again.
    After `steps` global batches, which hold each record, the first record comes again; with None
    it never does.

    Returns:
      Vectors, int64 [global_batch_size / replicas], one for each batch of the shard.
    """
    size = global_batch_size // shard.replicas

    def of_batch(step: tf.Tensor, replica: tf.Tensor) -> tf.Tensor:
        first = step * global_batch_size + replica * size
        return tf.minimum(first + tf.range(size, dtype=tf.int64), len(table) - 1)

    return batch_positions(shard, start_step=0, steps=steps).map(of_batch)


def batch_positions(
    shard: InputShard, *, start_step: int, steps: int | None = None
) -> tf.data.Dataset:
    """Makes an infinite dataset of the (step, replica) of each batch of a shard.

    They are those of all steps from `start_step` on. With `steps`, those below it come again and
    again.

    Returns:
      Pairs of int64 scalars.
    """
    replicas = shard.replica_range
    first = start_step + tf.cast(shard.worker, tf.int64)

    def position(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # With replicas 2 and 3, and every third step from 7 on: (7, 2) (7, 3) (10, 2) (10, 3) …
        step = first + number // len(replicas) * shard.workers
        return step, replicas.start + number % len(replicas)

    if steps is None:
        return tf.data.Dataset.range(FOREVER).map(position)
    # With 3 steps: 0 1 2 0 1 2 …; evaluated again, a split begins anew. Of 8 steps, worker 1 of 3
    # has 1 4 7: they are (8 - 1) / 3, rounded up.
    count = tf.maximum(-((first - steps) // shard.workers), 0)
    return tf.data.Dataset.range(count * len(replicas)).repeat().map(position)
