"""From a dataset directory to a dataset that any distribution strategy can train on."""

import os

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.info import DatasetInfo, load_info
from pipeline.parse import parse

_READERS = 16


def make_dataset(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    split: str = "train",
    global_batch_size: int = 256,
    config: InputConfig | None = None,
    seed: int = 0,
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """An infinite training dataset for one input pipeline.

    Every shard is a fair sample of the layouts, so each pipeline reads its own shards.

    Args:
      data_dir: dataset directory; None for the one that TILLROLL_DATA_DIR names.
      split: split to read.
      global_batch_size: records a training step takes, over all replicas.
      config: how records become elements.
      seed: seeds the order of shards and records.
      input_context: which pipeline this is; None for the only one.

    Returns:
      Batches of global_batch_size / replicas records: see `InputConfig.output`.

    Raises:
      ValueError: the split or the label does not exist or is empty, the batch can't be divided
        by the replicas, or there are fewer shards than pipelines.
    """
    info = load_info(data_dir)
    config = config or InputConfig()
    context = input_context or tf.distribute.InputContext()
    _check(info, split, global_batch_size, config, context)

    paths = info.shard_paths(split)[context.input_pipeline_id :: context.num_input_pipelines]
    # Shards are read side by side, which mixes them before the shuffle buffer does.
    records = (
        tf.data.Dataset.from_tensor_slices(paths)
        .shuffle(len(paths), seed=seed)
        .repeat()
        .interleave(
            tf.data.TFRecordDataset,
            cycle_length=min(_READERS, len(paths)),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        .shuffle(config.shuffle_buffer, seed=seed)
    )
    features = info.manifest.features
    elements = records.map(
        lambda record: _select(parse(record, features, config), config),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    batch_size = context.get_per_replica_batch_size(global_batch_size)
    return elements.batch(batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def make_distributed_dataset(
    strategy: tf.distribute.Strategy,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    split: str = "train",
    global_batch_size: int = 256,
    config: InputConfig | None = None,
    seed: int = 0,
) -> tf.distribute.DistributedDataset:
    """`make_dataset` for a strategy: each of its input pipelines reads its own shards.

    Train with explicit `steps_per_epoch`: the dataset is infinite.

    Args:
      strategy: any `tf.distribute` strategy.
      data_dir: dataset directory; None for the one that TILLROLL_DATA_DIR names.
      split: split to read.
      global_batch_size: records a training step takes, over all replicas.
      config: how records become elements.
      seed: seeds the order of shards and records.
    """

    def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return make_dataset(
            data_dir,
            split=split,
            global_batch_size=global_batch_size,
            config=config,
            seed=seed,
            input_context=context,
        )

    return strategy.distribute_datasets_from_function(pipeline)


def _check(
    info: DatasetInfo,
    split: str,
    global_batch_size: int,
    config: InputConfig,
    context: tf.distribute.InputContext,
) -> None:
    if not info.split(split).records:
        raise ValueError(f"split {split!r} of {info.data_dir} is empty: choose another")
    if config.label not in info.manifest.vocabularies:
        raise ValueError(
            f"label {config.label!r} is no category of {info.data_dir}: choose one of "
            f"{', '.join(info.manifest.vocabularies)}"
        )
    replicas = context.num_replicas_in_sync
    if global_batch_size < 1 or global_batch_size % replicas:
        raise ValueError(
            f"global_batch_size {global_batch_size} can't be divided by {replicas} replicas: "
            f"choose a multiple of {replicas}"
        )
    shards = info.shard_paths(split)
    if len(shards) < context.num_input_pipelines:
        raise ValueError(
            f"split {split!r} of {info.data_dir} has {len(shards)} shards for "
            f"{context.num_input_pipelines} input pipelines: build it with "
            f"--shards-multiple-of {context.num_input_pipelines}"
        )


def _select(
    values: dict[str, tf.Tensor], config: InputConfig
) -> dict[str, tf.Tensor] | tuple[tf.Tensor, tf.Tensor]:
    return values if config.output == "features" else (values["image"], values["label"])
