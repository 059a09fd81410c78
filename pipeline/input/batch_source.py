"""The records of batches, and the numbers that belong to each batch: step, rows and seeds."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from pipeline.config import Size
from pipeline.input.index_dataset import (
    InputShard,
    TensorArrays,
    batch_positions,
    evaluation_records,
    training_records,
)
from pipeline.records.table import RecordTable
from pipeline.sampling.phases import PhasedPlan
from pipeline.sampling.plan import example_seeds

_ARRAYS = TensorArrays()


class BatchKey(NamedTuple):
    """Numbers of a batch of one replica; int64.

    Attributes:
      step: global step, [].
      row: rows of the global batch, [n].
      seed: seeds of the examples, [n].
      bucket: position of the images' size in `BatchSource.sizes`, []; 0 where there are none.
    """

    step: tf.Tensor
    row: tf.Tensor
    seed: tf.Tensor
    bucket: tf.Tensor

    @classmethod
    def of(cls, step: tf.Tensor, row: tf.Tensor, bucket: tf.Tensor, *, seed: int) -> "BatchKey":
        """Makes the key of a batch and the seeds of its examples; `seed` is that of the plan."""
        seeds = example_seeds(seed, step, row, _ARRAYS)
        return cls(step=step, row=row, seed=seeds, bucket=bucket)


class BatchSource(NamedTuple):
    """The batches of a shard: two datasets in lockstep, with an element for each.

    Attributes:
      records: numbers of the records of each batch, int64 [n].
      keys: a `BatchKey` for each batch.
      sizes: (height, width) in pixels of the images of each bucket; none where all have that of the
        options.
    """

    records: tf.data.Dataset
    keys: tf.data.Dataset
    sizes: tuple[Size, ...] = ()


IsRecord = Callable[[BatchKey], tf.Tensor]


def training_source(
    table: RecordTable, plan: PhasedPlan, shard: InputShard, *, start_step: int
) -> BatchSource:
    """Makes the batches of a training from a step on."""
    in_block = tf.range(table.block_length, dtype=tf.int64)

    def key(step: tf.Tensor, replica: tf.Tensor) -> BatchKey:
        units = shard.rows(plan, step, replica)
        row = tf.reshape(units[:, None] * table.block_length + in_block, [-1])
        return BatchKey.of(step, row, tf.zeros_like(step), seed=plan.seed)

    return BatchSource(
        training_records(table, plan, shard, start_step=start_step),
        batch_positions(shard, start_step=start_step).map(key),
    )


def evaluation_source(
    table: RecordTable, shard: InputShard, *, global_batch_size: int, steps: int | None
) -> tuple[BatchSource, IsRecord]:
    """Makes the batches of an evaluation, which hold each record once.

    Args:
      table: the records in shard order.
      shard: the shard.
      global_batch_size: records of a step.
      steps: steps after which they begin anew; None for padding without end.

    Returns:
      The batches, and a function that tells which rows of a batch are no padding, bool [n].
    """
    size = global_batch_size // shard.replicas

    def key(step: tf.Tensor, replica: tf.Tensor) -> BatchKey:
        row = replica * size + tf.range(size, dtype=tf.int64)
        return BatchKey.of(step, row, tf.zeros_like(step), seed=0)

    source = BatchSource(
        evaluation_records(table, shard, global_batch_size=global_batch_size, steps=steps),
        batch_positions(shard, start_step=0, steps=steps).map(key),
    )
    return source, lambda key: key.step * global_batch_size + key.row < len(table)
