"""From a dataset directory to a dataset that any distribution strategy can train on."""

import dataclasses
import os
from typing import Any, NamedTuple

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.input.index_dataset import InputShard
from pipeline.input.input_pipeline import InputPipeline
from pipeline.records.table import check_batch_size

DataDir = str | os.PathLike[str] | None


def make_dataset(
    data_dir: DataDir = None,
    *,
    split: str = "train",
    global_batch_size: int = 256,
    config: InputConfig | None = None,
    seed: int = 0,
    start_step: int = 0,
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """The infinite training dataset of one input pipeline.

    Every global batch holds each layout within one record of its share, and so does every
    replica's slice of it. Equal arguments give equal batches, whatever the number of pipelines.
    Rows of a slice lie in an order that keeps its halves, quarters, eighths, … within one record
    of their share, too. Other parts of it are fair on average over steps, see
    `pipeline.sampling.batch_order.replica_rows`.

    Args:
      data_dir: dataset directory; None for the one that TILLROLL_DATA_DIR names.
      split: split to read.
      global_batch_size: records a training step takes, over all replicas.
      config: how records become elements.
      seed: seeds the order of the records and the augmentations.
      start_step: global step to begin with, as when training is resumed: an int, or the
        optimizer's `iterations`.
      input_context: which pipeline this is; None for the only one.

    Returns:
      Batches of global_batch_size / replicas records, see `InputConfig`; where the pipeline feeds
      several replicas, their batches follow each other. After an error, every batch is an error.

    Raises:
      ValueError: an argument does not fit the dataset; the sentence says what does.
    """
    context = input_context or tf.distribute.InputContext()
    elements = InputPipeline.load(data_dir, split, global_batch_size, config)
    return elements.training(InputShard.of(context), seed=seed, start_step=start_step)


def make_distributed_dataset(
    strategy: tf.distribute.Strategy,
    data_dir: DataDir = None,
    *,
    split: str = "train",
    global_batch_size: int = 256,
    config: InputConfig | None = None,
    seed: int = 0,
    start_step: int = 0,
    input_options: tf.distribute.InputOptions | None = None,
) -> tf.distribute.DistributedDataset:
    """`make_dataset` for a strategy: each of its input pipelines makes its slice of each batch.

    Train with explicit `steps_per_epoch`: the dataset is infinite. Keras' `fit` needs
    `training.keras_fit.MultiWorkerModel` under MultiWorkerMirroredStrategy, and does not support
    ParameterServerStrategy. TPUs take no strings: leave "id" and "text" out of the features, or set
    `experimental_fetch_to_device=False`.

    Under ParameterServerStrategy, give it to `ClusterCoordinator.create_per_worker_dataset`. Of W
    workers each then makes every W-th global batch, at its own speed, and from the start again
    when it was restarted. So it takes until the slowest has made its share of an epoch that each
    record has come at least once; others may have come more often.

    Args:
      strategy: any `tf.distribute` strategy.
      data_dir: as in `make_dataset`, and so are the other arguments.
      split: split to read.
      global_batch_size: records a training step takes, over all replicas.
      config: how records become elements.
      seed: seeds the order of the records and the augmentations.
      start_step: global step to begin with: an int, or the optimizer's `iterations`.
      input_options: TensorFlow's, such as per-replica pipelines under MirroredStrategy.
    """
    _check_strategy(strategy)
    elements = InputPipeline.load(data_dir, split, global_batch_size, config)

    def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return elements.training(_slice(strategy, context), seed=seed, start_step=start_step)

    return strategy.distribute_datasets_from_function(pipeline, input_options)


class Evaluation(NamedTuple):
    """A dataset that repeats a split without end, and how many steps hold all of the split.

    Always take `steps` batches: `model.evaluate(dataset, steps=steps)`, `model.fit(...,
    validation_data=dataset, validation_steps=steps)`, `zip(range(steps), dataset)`.
    """

    dataset: Any
    steps: int


def make_evaluation_dataset(
    strategy: tf.distribute.Strategy,
    data_dir: DataDir = None,
    *,
    split: str = "validation",
    global_batch_size: int = 256,
    config: InputConfig | None = None,
) -> Evaluation:
    """Each record of a split once every `steps` batches, of which the last is padded with weight 0.

    InputPipeline always carry weights: (image, label, weight), or the features with "weight" among
    them. Augmentations and balance are left out. Keras divides its `loss` by all rows, padding
    included: name among `weighted_metrics` what is to be averaged over records.

    Under ParameterServerStrategy, workers advance at their own speed, each with padding without
    end behind its last record: take at least `steps`, until the weights add up to the records. A
    worker that is restarted meanwhile gives its records again.

    Args:
      strategy: any `tf.distribute` strategy.
      data_dir: as in `make_dataset`.
      split: split to read.
      global_batch_size: records of a step, over all replicas.
      config: how records become elements.
    """
    _check_strategy(strategy)
    elements = InputPipeline.load(data_dir, split, global_batch_size, config, evaluation=True)
    check_batch_size(elements.global_batch_size, strategy.num_replicas_in_sync)
    steps = elements.info.evaluation_steps(split, elements.global_batch_size)
    stop = None if is_parameter_server(strategy) else steps

    def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return elements.evaluation(_slice(strategy, context), steps=stop)

    return Evaluation(strategy.distribute_datasets_from_function(pipeline), steps)


def is_parameter_server(strategy: tf.distribute.Strategy) -> bool:
    """Whether its workers wait for nobody."""
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)


def worker_count(strategy: tf.distribute.ParameterServerStrategy) -> int:
    """How many workers there are, which TensorFlow tells nowhere in public."""
    return int(strategy._cluster_resolver.cluster_spec().num_tasks("worker"))


def _check_strategy(strategy: Any) -> None:
    if not hasattr(strategy, "distribute_datasets_from_function"):
        raise ValueError(
            "strategy must be a tf.distribute.Strategy, such as tf.distribute.get_strategy(), got "
            f"{strategy!r}"
        )


def _slice(strategy: tf.distribute.Strategy, context: tf.distribute.InputContext) -> InputShard:
    if not is_parameter_server(strategy):
        return InputShard.of(context)
    # The context tells of one pipeline, on whichever worker: which one is known at run time.
    return dataclasses.replace(
        InputShard.of(context),
        workers=worker_count(strategy),
        worker=tf.distribute.coordinator.experimental_get_current_worker_index(),
    )
