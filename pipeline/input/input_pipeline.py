"""One input pipeline: plan, read, decode, augment, batch, prefetch."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline.augmentation.chain import augment_views
from pipeline.augmentation.pixels import to_float32_on_cpu
from pipeline.config import Augmentation, InputConfig
from pipeline.input.decode import decode_batches, decode_record
from pipeline.input.features import MADE_FEATURES, read_features, stored_feature
from pipeline.input.index_dataset import (
    InputShard,
    TensorArrays,
    batch_positions,
    evaluation_records,
    training_records,
)
from pipeline.input.pixel_batches import load_pixel_reader, pixel_batches
from pipeline.input.unbroken import unbroken
from pipeline.option_checks import as_integer, check_type
from pipeline.records.info import DatasetInfo
from pipeline.records.pixel_reader import PixelReader
from pipeline.records.reader import RecordReader
from pipeline.records.table import RecordTable, check_batch_size, load_record_table, make_plan
from pipeline.sampling.phases import PhasedPlan
from pipeline.sampling.plan import example_seeds

_ARRAYS = TensorArrays()

# Nothing here needs AutoGraph, which takes several times as long as all else to make a dataset.
_as_written = tf.autograph.experimental.do_not_convert


@dataclass(frozen=True, kw_only=True, eq=False)
class InputPipeline:
    """The input pipeline of one process, for training and for evaluation.

    `_batches` holds the whole chain.

    Attributes:
      pixel_reader: reads the pixels of whole batches; None where `reader` reads records, which are
        parsed.
    """

    info: DatasetInfo
    split: str
    global_batch_size: int
    config: InputConfig
    table: RecordTable
    reader: RecordReader
    pixel_reader: PixelReader | None

    @classmethod
    @_as_written
    def load(
        cls,
        info: DatasetInfo,
        split: str,
        global_batch_size: int,
        config: InputConfig | None,
        *,
        evaluation: bool = False,
    ) -> Self:
        """Loads what is known of a split, and checks that the options fit it.

        Raises:
          ValueError: they do not.
        """
        global_batch_size = as_integer("global_batch_size", global_batch_size, example=256)
        if config is not None:
            check_type("config", config, InputConfig, example="InputConfig(height=256)")
        config = config or InputConfig()
        if evaluation:
            config = dataclasses.replace(config, crop=None)
        if not info.records(split):
            raise ValueError(f"split {split!r} of {info.data_dir} is empty: choose another")
        info.vocabulary(config.label)
        info.vocabulary(config.balance.by)
        for name in set(config.features or ()) - set(MADE_FEATURES):
            stored_feature(name, info, config)
        shards = info.split(split).shards
        if evaluation:
            table = RecordTable.in_shard_order(info, split)
        else:
            table = load_record_table(info, split, config)
        mean_bytes = sum(s.size_bytes for s in shards) // sum(s.records for s in shards)
        with tf.init_scope():  # tensors that every graph shares, also when a graph is being traced
            reader = RecordReader(table, config.reading, mean_bytes=mean_bytes)
        return cls(
            info=info,
            split=split,
            global_batch_size=global_batch_size,
            config=config,
            table=table,
            reader=reader,
            pixel_reader=load_pixel_reader(info, split, table, config),
        )

    @_as_written
    def training(self, shard: InputShard, *, seed: int, start_step: int) -> tf.data.Dataset:
        """Makes an infinite dataset of the batches of a shard from a step on."""
        seed = as_integer("seed", seed, example=0)
        start_step = as_integer("start_step", start_step, example=0)
        block_length = self.config.reading.block_length
        check_batch_size(self.global_batch_size, shard.replicas, block_length)
        if start_step < 0:
            raise ValueError(f"start_step must be at least 0, got {start_step}")
        plan = make_plan(
            self.info,
            self.split,
            self.config,
            self.table,
            batch_size=self.global_batch_size,
            seed=seed,
        )
        in_block = tf.range(block_length, dtype=tf.int64)

        def key(step: tf.Tensor, replica: tf.Tensor) -> _BatchKey:
            units = shard.rows(plan, step, replica)
            row = tf.reshape(units[:, None] * block_length + in_block, [-1])
            return _BatchKey(step=step, row=row, seed=example_seeds(plan.seed, step, row, _ARRAYS))

        return self._batches(
            training_records(self.table, plan, shard, start_step=start_step),
            batch_positions(shard, start_step=start_step).map(key),
            _Mode(
                batch_size=self.global_batch_size // shard.replicas,
                block_length=block_length,
                weigh=_importance(self.table, plan, self.config.balance.by),
                weighted=self.config.sample_weights,
                augmentations=(
                    self.config.augmentations if self.config.placement == "host" else ()
                ),
            ),
        )

    @_as_written
    def evaluation(self, shard: InputShard, *, steps: int | None) -> tf.data.Dataset:
        """Makes an infinite dataset of the batches of a shard, which hold each record once.

        After `steps` global batches they begin anew; with None, padding follows.
        """
        check_batch_size(self.global_batch_size, shard.replicas)
        size = self.global_batch_size // shard.replicas

        def key(step: tf.Tensor, replica: tf.Tensor) -> _BatchKey:
            row = replica * size + tf.range(size, dtype=tf.int64)
            return _BatchKey(step=step, row=row, seed=example_seeds(0, step, row, _ARRAYS))

        def weigh(key: _BatchKey, _: dict[str, tf.Tensor]) -> tf.Tensor:
            record = key.step * self.global_batch_size + key.row
            return tf.cast(record < len(self.table), tf.float32)

        return self._batches(
            evaluation_records(
                self.table, shard, global_batch_size=self.global_batch_size, steps=steps
            ),
            batch_positions(shard, start_step=0, steps=steps).map(key),
            _Mode(
                batch_size=size,
                block_length=size,
                weigh=weigh,
                weighted=True,
                # Views are alike without.
                augmentations=self.config.augmentations if self.config.views > 1 else (),
            ),
        )

    def first_records(self, count: int) -> dict[str, npt.NDArray[Any]]:
        """Reads the first records, or all if there are fewer; see `read_records`."""
        return self.read_records(np.arange(min(count, len(self.table))))

    @_as_written
    def read_records(self, numbers: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """Reads some records, without cropping or augmenting them.

        A dataset of them would be traced for longer than they take.

        Args:
          numbers: their numbers in `table`, int64 [n].

        Returns:
          The image and the stored ones among the features of the options, by name, [n, ...].
        """
        config = dataclasses.replace(self.config, crop=None)
        names = [name for name in config.features or ("label",) if name not in MADE_FEATURES]
        count = len(numbers)
        block_length = count if self.table.order is None else 1
        with tf.device("CPU"):
            batches = tf.data.Dataset.from_tensors(tf.constant(numbers, tf.int64))
            serialized = self.reader.read(batches, batch_size=count, block_length=block_length)
            decoded = [decode_record(each, self.info, config, names) for each in serialized]
            images, values = tf.nest.map_structure(lambda *each: tf.stack(each), *decoded)
            seeds = tf.zeros([count], tf.int64)  # they draw windows, of which there are none
            features = read_features(values, self.info, config, names, seeds)
            features["image"] = to_float32_on_cpu(images) if config.dtype == "float32" else images
        return {name: value.numpy() for name, value in features.items()}

    def _batches(
        self, records: tf.data.Dataset, keys: tf.data.Dataset, mode: "_Mode"
    ) -> tf.data.Dataset:
        """Makes batches: read, decode, make features, augment, weigh, prefetch.

        Args:
          records: numbers of the records of each batch, int64 [batch_size].
          keys: a `_BatchKey` for each batch.
          mode: how training and evaluation differ.
        """
        config = self.config
        names = config.features or ("image", "label")
        if mode.weighted and "weight" not in names:
            names = (*names, "weight")
        stored = [name for name in names if name not in MADE_FEATURES]
        if "weight" in names:
            stored.append(f"{config.balance.by}_id")
        size = mode.batch_size

        def make(key: _BatchKey, images: tf.Tensor, values: dict[str, tf.Tensor]) -> Any:
            features = read_features(values, self.info, config, stored, key.seed)
            features["image"] = images
            features["step"] = tf.fill([size], key.step)
            features["row"] = tf.ensure_shape(key.row, [size])
            features["seed"] = tf.ensure_shape(key.seed, [size])
            if mode.augmentations:
                ops, views = mode.augmentations, config.views
                features |= augment_views(
                    features, ops, key.seed, views, dtype=config.dtype, compiled=True
                )
            elif config.dtype == "float32":
                features["image"] = to_float32_on_cpu(features["image"])
            if "weight" in names:
                features["weight"] = mode.weigh(key, features)
            if config.features is None:
                return tuple(features[name] for name in names)
            return {name: features[name] for name in names}

        # Records, seeds and keys are three datasets in lock-step: all follow from the plan and have
        # one element for each record, or for each batch, of the same steps. So they are zipped.
        if self.pixel_reader:
            decoded = pixel_batches(
                self.pixel_reader, records, self.info, config, stored, batch_size=size
            )
        else:
            serialized = self.reader.read(records, batch_size=size, block_length=mode.block_length)
            seeds = keys.flat_map(lambda key: tf.data.Dataset.from_tensor_slices(key.seed))
            decoded = decode_batches(serialized, seeds, self.info, config, stored, batch_size=size)
        batches = unbroken(
            tf.data.Dataset.zip((keys.enumerate(), decoded)).map(
                lambda numbered, batch: (numbered[0], make(numbered[1], *batch)),
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=True,
            )
        )
        # Where TensorFlow does not know that a dataset is infinite, workers ask each other at every
        # step whether any of them has come to the end.
        infinite = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        batches = batches.apply(infinite)
        options = tf.data.Options()
        # Each pipeline makes its own shard: nothing is left to shard.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return batches.prefetch(tf.data.AUTOTUNE).with_options(options)


class _BatchKey(NamedTuple):
    """Step, int64 scalar, and rows and seeds, int64 [n], of the examples of a batch."""

    step: tf.Tensor
    row: tf.Tensor
    seed: tf.Tensor


_Weigh = Callable[[_BatchKey, dict[str, tf.Tensor]], tf.Tensor]


@dataclass(frozen=True, kw_only=True)
class _Mode:
    """The differences between training and evaluation.

    Attributes:
      batch_size: records of a batch of one replica.
      block_length: maximum number of records that are read together.
      weigh: computes the weights of the examples, float32 [n].
      weighted: batches carry weights even if `InputConfig.features` does not name them.
      augmentations: ops that run on the host.
    """

    batch_size: int
    block_length: int
    weigh: _Weigh
    weighted: bool
    augmentations: Sequence[Augmentation] = ()


def _importance(table: RecordTable, plan: PhasedPlan, by: str) -> _Weigh:
    """Makes the importance weights, which undo the balance of the step's phase."""
    if table.block_length > 1:
        return lambda key, _: tf.ones_like(key.row, tf.float32)
    weights = np.zeros((len(plan.phases), int(table.categories.max()) + 1), np.float32)
    for weight, phase in zip(weights, plan.phases, strict=True):
        weight[table.categories] = phase.plan.weights
    first_steps = np.array(plan.first_steps, np.int64)

    def weigh(key: _BatchKey, features: dict[str, tf.Tensor]) -> tf.Tensor:
        phase = _ARRAYS.searchsorted(first_steps, key.step[None])[0] - 1
        return tf.gather(tf.gather(weights, phase), features[f"{by}_id"])

    return weigh
