"""The batches of datasets with buckets: each global batch is of one bucket."""

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from pipeline.input.batch_source import BatchKey, BatchSource, IsRecord
from pipeline.input.index_dataset import (
    InputShard,
    TensorArrays,
    batch_positions,
    training_records,
)
from pipeline.records.bucket_table import BucketOrder, BucketTable
from pipeline.sampling.batch_order import replica_rows
from pipeline.sampling.buckets import BucketPlan
from pipeline.sampling.phases import FOREVER, PhasedPlan

_STEPS_AT_ONCE = 1024  # whose buckets are found together: starting the ops takes most of the time
_ARRAYS = TensorArrays()


class BucketPosition(NamedTuple):
    """The batch of a replica; int64 scalars.

    Attributes:
      step: global step.
      replica: the replica.
      bucket: the bucket of the global batch.
      bucket_step: number of the steps before that have the same bucket.
    """

    step: tf.Tensor
    replica: tf.Tensor
    bucket: tf.Tensor
    bucket_step: tf.Tensor


def bucket_training_source(
    table: BucketTable, plan: BucketPlan, shard: InputShard, *, start_step: int
) -> BatchSource:
    """Makes the batches of a training from a step on, as `batch_source.training_source`."""
    seeds = tf.constant([each.seed for each in plan.plans], tf.int64)

    def key(position: BucketPosition) -> BatchKey:
        # `training_records` puts the rows of a bucket's step in this order.
        row = replica_rows(
            position.bucket_step,
            position.replica,
            replicas=shard.replicas,
            batch_units=plan.batch_units,
            seed=tf.gather(seeds, position.bucket),
            xp=_ARRAYS,
        )
        return BatchKey.of(position.step, row, position.bucket, seed=plan.seed)

    return BatchSource(
        _training_records(table, plan, shard, start_step=start_step),
        _positions(plan, shard, start_step=start_step).map(key),
        table.sizes,
    )


def _positions(plan: BucketPlan, shard: InputShard, *, start_step: int) -> tf.data.Dataset:
    """Makes an infinite dataset of the `BucketPosition` of each batch of a shard, from a step on.

    They come step by step and, of each step, replica by replica.
    """
    replicas = np.array(shard.replica_range, np.int64)

    def of_steps(step: tf.Tensor) -> BucketPosition:
        found = plan.of_steps(step, _ARRAYS)
        steps, bucket, bucket_step = (
            tf.repeat(values, len(replicas)) for values in (step, found.bucket, found.step)
        )
        return BucketPosition(steps, tf.tile(replicas, tf.shape(step)), bucket, bucket_step)

    first = start_step + tf.cast(shard.worker, tf.int64)
    steps = tf.data.Dataset.range(first, FOREVER, shard.workers).batch(_STEPS_AT_ONCE)
    return steps.map(of_steps).flat_map(tf.data.Dataset.from_tensor_slices)


def _training_records(
    table: BucketTable, plan: BucketPlan, shard: InputShard, *, start_step: int
) -> tf.data.Dataset:
    """Makes an infinite dataset of the numbers of the records of each batch, from a step on."""
    # The steps of a bucket that one of several workers makes follow no rule, so each worker plans
    # the batches of all, and drops those of others.
    everyone = dataclasses.replace(shard, workers=1, worker=0)
    before = plan.steps_before(np.array([start_step]))[0]
    streams = [
        training_records(
            table.of_bucket(bucket),
            PhasedPlan(plans=(inner,)),
            everyone,
            start_step=int(before[bucket]),
        )
        for bucket, inner in enumerate(plan.plans)
    ]
    positions = _positions(plan, everyone, start_step=start_step)
    buckets = positions.map(lambda position: position.bucket)
    records = tf.data.Dataset.choose_from_datasets(streams, buckets, stop_on_empty_dataset=True)
    if shard.workers == 1:
        return records
    worker, batches_per_step = tf.cast(shard.worker, tf.int64), len(shard.replica_range)

    def is_own(number: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
        return number // batches_per_step % shard.workers == worker

    return records.enumerate().filter(is_own).map(lambda _, numbers: numbers)


def bucket_evaluation_source(
    order: BucketOrder, shard: InputShard, *, global_batch_size: int, steps: int | None
) -> tuple[BatchSource, IsRecord]:
    """Makes the batches of an evaluation, bucket by bucket; see `batch_source.evaluation_source`.

    The last batch of each bucket is padded. The padding behind the last record has its bucket.
    """
    size, of_buckets = global_batch_size // shard.replicas, order.steps(global_batch_size)
    counts, first_records = order.counts, np.cumsum(order.counts) - order.counts
    step_ends = np.cumsum(of_buckets)
    first_steps = step_ends - of_buckets
    with tf.init_scope(), tf.device("CPU"):  # a tensor that every graph shares
        records = tf.constant(order.records, tf.int64)

    def numbers_in_bucket(step: tf.Tensor, bucket: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
        return (step - tf.gather(first_steps, bucket)) * global_batch_size + row

    def key(step: tf.Tensor, replica: tf.Tensor) -> BatchKey:
        row = replica * size + tf.range(size, dtype=tf.int64)
        bucket = _ARRAYS.searchsorted(step_ends, step[None])[0]
        bucket = tf.minimum(bucket, len(of_buckets) - 1)
        return BatchKey.of(step, row, bucket, seed=0)

    def is_record(key: BatchKey) -> tf.Tensor:
        return numbers_in_bucket(key.step, key.bucket, key.row) < tf.gather(counts, key.bucket)

    def of_batch(key: BatchKey) -> tf.Tensor:
        number = numbers_in_bucket(key.step, key.bucket, key.row)
        number = tf.minimum(number, tf.gather(counts, key.bucket) - 1)
        return tf.gather(records, tf.gather(first_records, key.bucket) + number)

    keys = batch_positions(shard, start_step=0, steps=steps).map(key)
    return BatchSource(keys.map(of_batch), keys, order.sizes), is_record
