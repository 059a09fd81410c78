"""One input pipeline: plan, read, decode, augment, batch, prefetch."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf

from pipeline.augmentation.chain import augment
from pipeline.config import Augmentation, InputConfig
from pipeline.input.decode import decode_batches, normalised, read_features, stored_feature
from pipeline.input.index_dataset import (
    Slice,
    TensorArrays,
    batch_places,
    evaluation_records,
    training_records,
)
from pipeline.input.unbroken import unbroken
from pipeline.option_checks import as_integer
from pipeline.records.info import DatasetInfo, load_info
from pipeline.records.reader import Reader
from pipeline.records.table import Deck, check_batch_size, make_deck, make_plan
from pipeline.sampling.plan import Plan, example_seeds

_ARRAYS = TensorArrays()
_MADE_FEATURES = ("image", "weight", "step", "row", "seed")

# Nothing here needs AutoGraph, which takes several times as long as all else to make a dataset.
_as_written = tf.autograph.experimental.do_not_convert


@dataclass(frozen=True, kw_only=True, eq=False)
class Elements:
    """What the input pipelines of one process share."""

    info: DatasetInfo
    split: str
    global_batch_size: int
    config: InputConfig
    deck: Deck
    reader: Reader

    @classmethod
    @_as_written
    def load(
        cls,
        data_dir: str | os.PathLike[str] | None,
        split: str,
        global_batch_size: int,
        config: InputConfig | None,
        *,
        evaluation: bool = False,
    ) -> Self:
        """Reads what is known of a split, and checks that the options fit it.

        Raises:
          ValueError: they do not.
        """
        global_batch_size = as_integer("global_batch_size", global_batch_size, example=256)
        info = load_info(data_dir)
        config = config or InputConfig()
        if evaluation:
            config = dataclasses.replace(config, crop=None)
        if not info.records(split):
            raise ValueError(f"split {split!r} of {info.data_dir} is empty: choose another")
        info.vocabulary(config.label)
        info.vocabulary(config.balance.by)
        for name in set(config.features or ()) - set(_MADE_FEATURES):
            stored_feature(name, info, config)
        shards = info.split(split).shards
        deck = Deck.in_order(info, split) if evaluation else make_deck(info, split, config)
        mean_bytes = sum(each.size_bytes for each in shards) // sum(s.records for s in shards)
        with tf.init_scope():  # tensors that every graph shares, also when a graph is being traced
            reader = Reader(deck, config.reading, mean_bytes=mean_bytes)
        return cls(
            info=info,
            split=split,
            global_batch_size=global_batch_size,
            config=config,
            deck=deck,
            reader=reader,
        )

    @_as_written
    def training(self, part: Slice, *, seed: int, start_step: int) -> tf.data.Dataset:
        """Batches of a slice from a step on, without end."""
        seed = as_integer("seed", seed, example=0)
        start_step = as_integer("start_step", start_step, example=0)
        run_length = self.config.reading.run_length
        check_batch_size(self.global_batch_size, part.replicas, run_length)
        if start_step < 0:
            raise ValueError(f"start_step must be at least 0, got {start_step}")
        plan = make_plan(
            self.info,
            self.split,
            self.config,
            self.deck,
            batch_size=self.global_batch_size,
            seed=seed,
        )
        run = tf.range(run_length, dtype=tf.int64)

        def place(step: tf.Tensor, replica: tf.Tensor) -> _Place:
            cards = part.cards(plan, step, replica)
            row = tf.reshape(cards[:, None] * run_length + run, [-1])
            return _Place(step=step, row=row, seed=example_seeds(plan.seed, step, row, _ARRAYS))

        return self._elements(
            training_records(self.deck, plan, part, start_step=start_step),
            batch_places(part, start_step=start_step).map(place),
            part,
            run_length=run_length,
            weigh=_importance(self.deck, plan, self.config.balance.by),
            weighted=self.config.sample_weights,
            augmentations=self.config.augmentations if self.config.placement == "host" else (),
        )

    @_as_written
    def evaluation(self, part: Slice, *, steps: int | None) -> tf.data.Dataset:
        """Batches of a slice, of which `steps` global ones hold each record once, without end.

        With None, batches behind the last record are padding, else they begin anew.
        """
        check_batch_size(self.global_batch_size, part.replicas)
        size = self.global_batch_size // part.replicas

        def place(step: tf.Tensor, replica: tf.Tensor) -> _Place:
            row = replica * size + tf.range(size, dtype=tf.int64)
            return _Place(step=step, row=row, seed=example_seeds(0, step, row, _ARRAYS))

        def weigh(place: _Place, _: dict[str, tf.Tensor]) -> tf.Tensor:
            record = place.step * self.global_batch_size + place.row
            return tf.cast(record < len(self.deck), tf.float32)

        return self._elements(
            evaluation_records(
                self.deck, part, global_batch_size=self.global_batch_size, steps=steps
            ),
            batch_places(part, start_step=0, steps=steps).map(place),
            part,
            run_length=size,
            weigh=weigh,
            weighted=True,
            augmentations=(),
        )

    def _elements(
        self,
        records: tf.data.Dataset,
        places: tf.data.Dataset,
        part: Slice,
        *,
        run_length: int,
        weigh: "_Weigh",
        weighted: bool,
        augmentations: Sequence[Augmentation],
    ) -> tf.data.Dataset:
        config = self.config
        names = config.features or ("image", "label")
        if weighted and "weight" not in names:
            names = (*names, "weight")
        stored = [name for name in names if name not in _MADE_FEATURES]
        if "weight" in names:
            stored.append(f"{config.balance.by}_id")

        size = self.global_batch_size // part.replicas

        def element(place: _Place, images: tf.Tensor, values: dict[str, tf.Tensor]) -> Any:
            features = read_features(values, self.info, config, stored, place.seed)
            features["image"] = images
            features["step"] = tf.fill([size], place.step)
            features["row"] = tf.ensure_shape(place.row, [size])
            features["seed"] = tf.ensure_shape(place.seed, [size])
            if config.dtype == "float32":
                features["image"] = normalised(features["image"])
            if augmentations:
                features |= augment(features, augmentations, place.seed)
            if "weight" in names:
                features["weight"] = weigh(place, features)
            if config.features is None:
                return tuple(features[name] for name in names)
            return {name: features[name] for name in names}

        serialized = self.reader.read(records, batch_size=size, run_length=run_length)
        seeds = places.flat_map(lambda place: tf.data.Dataset.from_tensor_slices(place.seed))
        batches = decode_batches(serialized, seeds, self.info, config, stored, batch_size=size)
        elements = unbroken(
            tf.data.Dataset.zip((places.enumerate(), batches)).map(
                lambda numbered, batch: (numbered[0], element(numbered[1], *batch)),
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=True,
            )
        )
        # Where TensorFlow does not know that a dataset is infinite, workers ask each other at every
        # step whether any of them has come to the end.
        infinite = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        elements = elements.apply(infinite)
        options = tf.data.Options()
        # Each pipeline makes its own slice: nothing is left to shard.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return elements.prefetch(tf.data.AUTOTUNE).with_options(options)


def text_features(info: DatasetInfo, config: InputConfig) -> list[str]:
    """Those of `InputConfig.features` that are strings, which TPUs do not take."""
    strings = {each.name for each in info.features if each.dtype in ("bytes", "string")}
    stored = [name for name in config.features or () if name not in _MADE_FEATURES]
    return [name for name in stored if strings.intersection(stored_feature(name, info, config))]


class _Place(NamedTuple):
    """Where the examples of a batch belong: `step` is a scalar, `row` and `seed` are [n]."""

    step: tf.Tensor
    row: tf.Tensor
    seed: tf.Tensor


_Weigh = Callable[[_Place, dict[str, tf.Tensor]], tf.Tensor]


def _importance(deck: Deck, plan: Plan, by: str) -> _Weigh:
    """Importance weights, which undo the balance."""
    if deck.run_length > 1:
        return lambda place, _: tf.ones_like(place.row, tf.float32)
    weight = np.zeros(int(deck.categories.max()) + 1, np.float32)
    weight[deck.categories] = plan.weights
    return lambda _, features: tf.gather(weight, features[f"{by}_id"])
