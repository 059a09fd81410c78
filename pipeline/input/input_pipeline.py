"""One input pipeline: plan, read, decode, augment, batch, prefetch."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline.augmentation.chain import augment_views
from pipeline.augmentation.pixels import to_float32_on_cpu
from pipeline.config import Augmentation, InputConfig, Size
from pipeline.distribution.host_memory import memory_bytes
from pipeline.input.batch_source import (
    BatchKey,
    BatchSource,
    IsRecord,
    evaluation_source,
    training_source,
)
from pipeline.input.bucket_dataset import bucket_evaluation_source, bucket_training_source
from pipeline.input.decode import decode_batches, decode_record, stored_columns
from pipeline.input.features import MADE_FEATURES, read_features, stored_feature
from pipeline.input.index_dataset import InputShard, TensorArrays
from pipeline.input.pixel_batches import MappedPixels, load_pixels
from pipeline.input.unbroken import unbroken
from pipeline.option_checks import as_integer, check_step, check_type
from pipeline.records.bucket_table import BucketOrder, BucketTable
from pipeline.records.info import DatasetInfo
from pipeline.records.reader import RecordReader
from pipeline.records.table import RecordTable, check_batch_size, load_record_table, make_plan
from pipeline.sampling.phases import PhasedPlan
from pipeline.sampling.plan import IntArray

_ARRAYS = TensorArrays()

# Nothing here needs AutoGraph, which takes several times as long as all else to make a dataset.
_as_written = tf.autograph.experimental.do_not_convert


@dataclass(frozen=True, kw_only=True, eq=False)
class InputPipeline:
    """The input pipeline of one process, for training and for evaluation.

    `_batches` holds the whole chain.

    Attributes:
      table: the records; for evaluation, in shard order.
      pixels: the pixels of the records in memory; None where `reader` reads records, which are
        parsed.
      buckets: where images have several sizes, the records by bucket: a `BucketTable` for training,
        a `BucketOrder` for evaluation.
    """

    info: DatasetInfo
    split: str
    global_batch_size: int
    config: InputConfig
    table: RecordTable
    reader: RecordReader
    pixels: MappedPixels | None
    buckets: BucketTable | BucketOrder | None = None

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
        buckets: BucketTable | BucketOrder | None = None
        if evaluation:
            table = RecordTable.in_shard_order(info, split)
            buckets = BucketOrder.load(info, split, config) if config.buckets else None
        elif config.buckets:
            buckets = BucketTable.load(info, split, config)
            table = buckets.table
        else:
            table = load_record_table(info, split, config)
        mean_bytes = sum(s.size_bytes for s in shards) // sum(s.records for s in shards)
        pixels = load_pixels(info, split, table, config)
        with tf.init_scope():  # tensors that every graph shares, also when a graph is being traced
            reader = RecordReader(info, table, config.reading, mean_bytes=mean_bytes)
        return cls(
            info=info,
            split=split,
            global_batch_size=global_batch_size,
            config=config,
            table=table,
            reader=reader,
            pixels=pixels,
            buckets=buckets,
        )

    @_as_written
    def training(self, shard: InputShard, *, seed: int, start_step: int) -> tf.data.Dataset:
        """Makes an infinite dataset of the batches of a shard from a step on."""
        seed = as_integer("seed", seed, example=0)
        start_step = as_integer("start_step", start_step, example=0)
        block_length = self.config.reading.block_length
        check_batch_size(self.global_batch_size, shard.replicas, block_length)
        _check_memory(self.global_batch_size // shard.replicas, self.config)
        check_step("start_step", start_step)
        options = {"batch_size": self.global_batch_size, "seed": seed}
        if isinstance(self.buckets, BucketTable):
            buckets = self.buckets.make_plan(self.info, self.split, self.config, **options)
            plan, categories = PhasedPlan(plans=(buckets.layout_plan,)), self.buckets.categories
            source = bucket_training_source(self.buckets, buckets, shard, start_step=start_step)
        else:
            plan = make_plan(self.info, self.split, self.config, self.table, **options)
            categories = self.table.categories
            source = training_source(self.table, plan, shard, start_step=start_step)
        return self._batches(
            source,
            _Mode(
                batch_size=self.global_batch_size // shard.replicas,
                block_length=block_length,
                weigh=_importance(self.table, plan, categories, self.config.balance.by),
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
        _check_memory(size, self.config)
        source, is_record = self._evaluation_source(shard, steps)
        return self._batches(
            source,
            _Mode(
                batch_size=size,
                block_length=size,
                weigh=lambda key, _: tf.cast(is_record(key), tf.float32),
                weighted=True,
                # Views are alike without.
                augmentations=self.config.augmentations if self.config.views > 1 else (),
            ),
        )

    def _evaluation_source(
        self, shard: InputShard, steps: int | None
    ) -> tuple[BatchSource, IsRecord]:
        options: dict[str, Any] = {"global_batch_size": self.global_batch_size, "steps": steps}
        if isinstance(self.buckets, BucketOrder):
            return bucket_evaluation_source(self.buckets, shard, **options)
        return evaluation_source(self.table, shard, **options)

    def evaluation_steps(self) -> int:
        """Returns the number of global batches that hold each record of an evaluation once."""
        if isinstance(self.buckets, BucketOrder):
            return int(self.buckets.steps(self.global_batch_size).sum())
        return self.info.evaluation_steps(self.split, self.global_batch_size)

    def first_records(self, count: int) -> dict[str, npt.NDArray[Any]]:
        """Reads the first records, or all if there are fewer; see `read_records`.

        With buckets they are those of the bucket with the most records, in its size.
        """
        if isinstance(self.buckets, BucketOrder):
            numbers, size = self.buckets.largest()
            return self.read_records(numbers[:count], size)
        return self.read_records(np.arange(min(count, len(self.table))))

    @_as_written
    def read_records(
        self, numbers: npt.NDArray[np.int64], size: Size | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Reads some records, without cropping or augmenting them.

        A dataset of them would be traced for longer than they take.

        Args:
          numbers: their numbers in `table`, int64 [n].
          size: (height, width) of the images in pixels; None for that of the options.

        Returns:
          The image and the stored ones among the features of the options, by name, [n, ...].
        """
        config = dataclasses.replace(_of_size(self.config, size), crop=None)
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

    def _batches(self, source: BatchSource, mode: "_Mode") -> tf.data.Dataset:
        """Makes batches of a source: read, decode, make features, augment, weigh, prefetch.

        `mode` tells how training and evaluation differ.
        """
        config, keys = self.config, source.keys
        names = config.features or ("image", "label")
        if mode.weighted and "weight" not in names:
            names = (*names, "weight")
        stored = [name for name in names if name not in MADE_FEATURES]
        if "weight" in names:
            stored.append(f"{config.balance.by}_id")
        size = mode.batch_size

        def make(
            config: InputConfig, key: BatchKey, images: tf.Tensor, values: dict[str, tf.Tensor]
        ) -> Any:
            features = read_features(values, self.info, config, stored, key.seed)
            shape = [size, config.height, config.width, config.channels]
            features["image"] = tf.ensure_shape(images, shape)
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

        def make_of_bucket(key: BatchKey, *batch: Any) -> Any:
            if not source.sizes:
                return make(config, key, *batch)
            # A branch for each bucket, in which the size of the images is known while tracing.
            branches = [
                functools.partial(make, _of_size(config, each), key, *batch)
                for each in source.sizes
            ]
            return tf.switch_case(tf.cast(key.bucket, tf.int32), branches)

        # Records, seeds and keys are three datasets in lock-step: all follow from the plan and have
        # one element for each record, or for each batch, of the same steps. So they are zipped.
        if self.pixels:
            columns = stored_columns(stored, self.info, config)
            read = functools.partial(
                self.pixels.read, columns=columns, config=config, batch_size=size
            )
            batches = source.records
        else:
            batches = self._decoded(source, stored, batch_size=size, block_length=mode.block_length)

        def make_current(numbered: tuple[tf.Tensor, BatchKey], batch: Any) -> tuple[tf.Tensor, Any]:
            number, key = numbered
            images_and_values = read(batch) if self.pixels else batch
            with tf.control_dependencies([self.reader.check_version(number)]):
                return tf.identity(number), make_of_bucket(key, *images_and_values)

        batches = unbroken(
            tf.data.Dataset.zip((keys.enumerate(), batches)).map(
                make_current,
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
        # Copying pixels is bound by memory: the more batches wait, the fewer of them are in caches.
        ahead = 1 if self.pixels else tf.data.AUTOTUNE
        return batches.prefetch(ahead).with_options(options)

    def _decoded(
        self, source: BatchSource, names: Sequence[str], *, batch_size: int, block_length: int
    ) -> tf.data.Dataset:
        """Reads the records of a source, and decodes their images; see `decode_batches`."""
        records = self.reader.read(source.records, batch_size=batch_size, block_length=block_length)
        seeds = source.keys.flat_map(lambda key: tf.data.Dataset.from_tensor_slices(key.seed))
        targets = None
        if source.sizes:
            table = tf.constant(source.sizes)

            def target(key: BatchKey) -> tf.data.Dataset:
                size = tf.gather(table, key.bucket)
                return tf.data.Dataset.from_tensors(size).repeat(batch_size)

            targets = source.keys.flat_map(target)
        return decode_batches(
            records, seeds, self.info, self.config, names, batch_size=batch_size, targets=targets
        )


_Weigh = Callable[[BatchKey, dict[str, tf.Tensor]], tf.Tensor]


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


def _importance(table: RecordTable, plan: PhasedPlan, categories: IntArray, by: str) -> _Weigh:
    """Makes the importance weights, which undo the balance of the step's phase.

    `categories` are the strata of the plan.
    """
    if table.block_length > 1:
        return lambda key, _: tf.ones_like(key.row, tf.float32)
    weights = np.zeros((len(plan.phases), int(categories.max()) + 1), np.float32)
    for weight, phase in zip(weights, plan.phases, strict=True):
        weight[categories] = phase.plan.weights
    first_steps = np.array(plan.first_steps, np.int64)

    def weigh(key: BatchKey, features: dict[str, tf.Tensor]) -> tf.Tensor:
        phase = _ARRAYS.searchsorted(first_steps, key.step[None])[0] - 1
        return tf.gather(tf.gather(weights, phase), features[f"{by}_id"])

    return weigh


def _check_memory(batch_size: int, config: InputConfig) -> None:
    """Raises ValueError if the memory of this machine can't hold two batches of images."""
    # A number of buckets chooses sizes of about the same area.
    sizes = config.buckets if isinstance(config.buckets, tuple) else [(config.height, config.width)]
    shape = (*max(sizes, key=math.prod), config.channels)
    image_bytes = math.prod(shape) * config.views * tf.as_dtype(config.dtype).size
    batch_bytes = batch_size * image_bytes
    if 2 * batch_bytes > (limit := memory_bytes()):
        raise ValueError(
            f"a batch of {batch_size:,} images of {'×'.join(map(str, shape))} {config.dtype} takes "
            f"{batch_bytes / 1e9:,.0f} GB, and two of them don't fit into the "
            f"{limit / 1e9:,.0f} GB of this machine: choose a smaller global_batch_size"
        )


def _of_size(config: InputConfig, size: Size | None) -> InputConfig:
    """Returns the options of a single size."""
    if size is None:
        return config
    return dataclasses.replace(config, height=size[0], width=size[1], buckets=None)
