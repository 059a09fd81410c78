"""Datasets of a dataset directory, for any distribution strategy."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.distribution.parameter_server import is_parameter_server, worker_count
from pipeline.input.index_dataset import InputShard
from pipeline.input.input_pipeline import InputPipeline
from pipeline.input.services import check_services, portable, through_services
from pipeline.option_checks import check_type
from pipeline.records.info import load_info
from pipeline.records.table import check_batch_size

DataDir = str | os.PathLike[str] | None


def make_dataset(
    data_dir: DataDir = None,
    *,
    version: int | None = None,
    split: str = "train",
    global_batch_size: int = 256,
    config: InputConfig | None = None,
    seed: int = 0,
    start_step: int = 0,
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Makes the infinite training dataset of one input pipeline.

    Every global batch holds each layout within one record of its share, and so does every
    replica's part of it. Equal arguments give equal batches, whatever the number of pipelines.
    The rows of a replica lie in an order that keeps halves, quarters, eighths, … within one record
    of their share, too. Other parts are fair on average over steps, see
    `pipeline.sampling.batch_order.replica_rows`. With `InputConfig.buckets`, a global batch has
    images of one size, and the shares are those of the records that have it.

    Args:
      data_dir: dataset directory; None for the one that TILLROLL_DATA_DIR names.
      version: version of the dataset; None for the newest.
      split: split to read.
      global_batch_size: records of a training step, over all replicas.
      config: options of the input pipeline; None for the defaults.
      seed: seeds the order of the records and the augmentations.
      start_step: global step to begin with: batches that a resumed training has taken, such as
        `EpochCheckpoints.step`. It may be a tensor or a variable. An optimizer's `iterations` are
        this number only without gradient accumulation and loss scaling.
      input_context: the position of this pipeline among several; None for the only one.

    Returns:
      A dataset of batches of global_batch_size / replicas records, see `InputConfig`. If the
      pipeline feeds several replicas, their batches follow each other. After an error, every batch
      is an error. Its attribute `steps_per_epoch` is the number of full global batches in an epoch.

    Raises:
      ValueError: an argument does not fit the dataset; the message says what is allowed.
    """
    context = tf.distribute.InputContext() if input_context is None else input_context
    check_type(
        "input_context", context, tf.distribute.InputContext, example="InputContext(2, 0, 2)"
    )
    info = load_info(data_dir, version=version)
    pipeline = InputPipeline.load(info, split, global_batch_size, config)
    dataset = pipeline.training(InputShard.of(context), seed=seed, start_step=start_step)
    return _with_steps_per_epoch(dataset, pipeline)


def make_distributed_dataset(
    strategy: tf.distribute.Strategy,
    data_dir: DataDir = None,
    *,
    version: int | None = None,
    split: str = "train",
    global_batch_size: int = 256,
    config: InputConfig | None = None,
    seed: int = 0,
    start_step: int = 0,
    input_options: tf.distribute.InputOptions | None = None,
    services: Sequence[str] = (),
) -> tf.distribute.DistributedDataset:
    """Makes the infinite training dataset of a strategy: `make_dataset` for each input pipeline.

    Always train with `steps_per_epoch`, as the dataset is infinite:

        dataset = make_distributed_dataset(strategy, "data/receipts")
        model.fit(dataset, steps_per_epoch=dataset.steps_per_epoch, epochs=10)

    Keras' `fit` needs `training.keras_fit.MultiWorkerModel` under MultiWorkerMirroredStrategy, and
    does not support ParameterServerStrategy. TPUs take no strings: leave "id" and "text" out of the
    features, or set `experimental_fetch_to_device=False`.

    Under ParameterServerStrategy, call this in the function that you give to
    `ClusterCoordinator.create_per_worker_dataset`, and take the steps of an epoch from
    `DatasetInfo.steps_per_epoch`. Each of W workers makes every W-th global batch, at its own
    speed, and begins anew when it is restarted. So all records have come once when the slowest
    worker has made its share of an epoch; some may have come more often by then.

    Args:
      strategy: any `tf.distribute` strategy.
      data_dir: as in `make_dataset`, and so are the other arguments.
      version: version of the dataset; None for the newest.
      split: split to read.
      global_batch_size: records of a training step, over all replicas.
      config: options of the input pipeline; None for the defaults.
      seed: seeds the order of the records and the augmentations.
      start_step: global step to begin with, as in `make_dataset`.
      input_options: TensorFlow's, such as per-replica pipelines under MirroredStrategy.
      services: addresses of the machines that read, decode and augment, each with a running
        `python -m pipeline.data_service`: service w of W makes every W-th global batch. Empty to do
        it here. The batches are the same. If a service is lost, the dataset waits for it, and
        once it is there again every batch is an error.

    Returns:
      What `strategy.distribute_datasets_from_function` returns. Its attribute `steps_per_epoch` is
      the number of full global batches in an epoch.

    Raises:
      TimeoutError: a data service does not answer within a minute.
      ValueError: an argument does not fit the dataset; the message says what is allowed.
    """
    _check_strategy(strategy)
    info = load_info(data_dir, version=version)
    if services:
        check_services(strategy, services)
        config = portable(config or InputConfig())
    pipeline = InputPipeline.load(info, split, global_batch_size, config)

    def make(context: tf.distribute.InputContext) -> tf.data.Dataset:
        shard = _shard(strategy, context)
        if not services:
            return pipeline.training(shard, seed=seed, start_step=start_step)

        def of_service(number: int) -> tf.data.Dataset:
            part = dataclasses.replace(shard, workers=len(services), worker=number)
            return pipeline.training(part, seed=seed, start_step=start_step)

        return through_services(services, of_service, batches=len(shard.replica_range))

    dataset = strategy.distribute_datasets_from_function(make, input_options)
    return _with_steps_per_epoch(dataset, pipeline)


def _with_steps_per_epoch(dataset: Any, pipeline: InputPipeline) -> Any:
    # An attribute, and not a pair: `fit` and `create_per_worker_dataset` take the dataset itself.
    dataset.steps_per_epoch = pipeline.info.steps_per_epoch(
        pipeline.split,
        pipeline.global_batch_size,
        block_length=pipeline.config.reading.block_length,
    )
    return dataset


class EvaluationDataset(NamedTuple):
    """A dataset that repeats a split without end, and the number of steps that hold it once.

    Always take `steps` batches: `model.evaluate(dataset, steps=steps)`, `model.fit(...,
    validation_data=dataset, validation_steps=steps)`, `zip(range(steps), dataset)`.
    """

    dataset: Any
    steps: int


def make_evaluation_dataset(
    strategy: tf.distribute.Strategy,
    data_dir: DataDir = None,
    *,
    version: int | None = None,
    split: str = "validation",
    global_batch_size: int = 256,
    config: InputConfig | None = None,
) -> EvaluationDataset:
    """Makes a dataset that holds each record of a split once every `steps` batches.

    The last of these batches, or with buckets the last of each size, is padded with examples of
    weight 0. So batches always carry weights: (image, label, weight), or the features with "weight"
    among them. Augmentations and balance are left out; but where an image has several views, these
    are augmented, by the same seeds in every evaluation. Keras divides its `loss` by all rows,
    padding included: pass metrics that are averages over records as `weighted_metrics`.

    Under ParameterServerStrategy, workers advance at their own speed, and each makes padding
    without end behind its last record: take `steps` batches or more, until the weights add up to
    the number of records. A worker that is restarted meanwhile gives its records again.

    Args:
      strategy: any `tf.distribute` strategy.
      data_dir: as in `make_dataset`.
      version: version of the dataset; None for the newest.
      split: split to read.
      global_batch_size: records of a step, over all replicas.
      config: options of the input pipeline; None for the defaults.

    Raises:
      ValueError: an argument does not fit the dataset; the message says what is allowed.
    """
    _check_strategy(strategy)
    info = load_info(data_dir, version=version)
    pipeline = InputPipeline.load(info, split, global_batch_size, config, evaluation=True)
    check_batch_size(pipeline.global_batch_size, strategy.num_replicas_in_sync)
    steps = pipeline.evaluation_steps()
    stop = None if is_parameter_server(strategy) else steps

    def make(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return pipeline.evaluation(_shard(strategy, context), steps=stop)

    return EvaluationDataset(strategy.distribute_datasets_from_function(make), steps)


def _check_strategy(strategy: Any) -> None:
    if not hasattr(strategy, "distribute_datasets_from_function"):
        raise ValueError(
            "strategy must be a tf.distribute.Strategy, such as tf.distribute.get_strategy(), got "
            f"{strategy!r}"
        )


def _shard(strategy: tf.distribute.Strategy, context: tf.distribute.InputContext) -> InputShard:
    if not is_parameter_server(strategy):
        return InputShard.of(context)
    # The context is that of a single pipeline. The worker that runs it is known at run time only.
    return dataclasses.replace(
        InputShard.of(context),
        workers=worker_count(strategy),
        worker=tf.distribute.coordinator.experimental_get_current_worker_index(),
    )
