"""A task small enough for tests: a linear layer over small images, with dropout."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from pipeline.augmentation.photometric import Brightness
from pipeline.config import InputConfig
from pipeline.distribution.cluster import Cluster
from pipeline.records.info import DatasetInfo
from pipeline.tasks.base import Head


@dataclass(frozen=True)
class TinyTask:
    size: int = 24
    dropout: float = 0.0

    def inputs(self, info: DatasetInfo) -> InputConfig:
        return InputConfig(
            height=self.size,
            width=self.size,
            channels=1,
            features=("image", "label"),
            augmentations=(Brightness(),),
        )

    def build(self, info: DatasetInfo) -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((self.size, self.size, 1)),
                keras.layers.Flatten(),
                keras.layers.Dropout(self.dropout),
                keras.layers.Dense(len(info.layouts)),
            ]
        )

    def heads(self, model: keras.Model) -> dict[str, Head]:
        return {variable.path: Head("layout") for variable in model.layers[-1].weights}

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], outputs)

    def metrics(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        return {"accuracy": tf.cast(tf.argmax(outputs, -1) == batch["label"], tf.float32)}

    def predictions(self, outputs: Any) -> dict[str, Any]:
        return {"label": tf.argmax(outputs, -1)}


@dataclass(frozen=True)
class AnySizeTask(TinyTask):
    """A model for images of any size."""

    def build(self, info: DatasetInfo) -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((None, None, 1)),
                keras.layers.Conv2D(4, 3, 2, activation="relu"),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(len(info.layouts)),
            ]
        )


class Penalty(keras.layers.Layer):
    """Adds the mean square of its inputs to the loss, so that halves of a batch differ in it."""

    def call(self, inputs: Any) -> Any:
        self.add_loss(3 * keras.ops.mean(keras.ops.square(inputs)))
        return inputs


@dataclass(frozen=True)
class PenalizedTask(TinyTask):
    """A model whose layers have losses of every kind, sparse gradients and none; of any size."""

    def build(self, info: DatasetInfo) -> keras.Model:
        layouts = len(info.layouts)
        image = keras.Input((None, None, 1))
        mean = keras.layers.GlobalAveragePooling2D()
        regularizer = keras.regularizers.L2(0.5)
        convolution = keras.layers.Conv2D(4, 3, 2, kernel_regularizer=regularizer)(image)
        of_ink = keras.layers.Dense(layouts, activity_regularizer="l1")(mean(convolution))
        level = keras.layers.Rescaling(7.0)(mean(image))
        of_level = keras.layers.Flatten()(keras.layers.Embedding(8, layouts)(level))
        logits = Penalty()(keras.layers.Add()([of_ink, of_level]))
        return keras.Model(image, {"logits": logits, "unused": keras.layers.Dense(2)(level)})

    def heads(self, model: keras.Model) -> dict[str, Head]:
        return {}

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        return super().loss(outputs["logits"], batch)

    def metrics(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        return super().metrics(outputs["logits"], batch)

    def predictions(self, outputs: Any) -> dict[str, Any]:
        return super().predictions(outputs["logits"])


@dataclass(frozen=True)
class SynchronizedTask(TinyTask):
    """A layer that adds a loss, and one that waits for all replicas."""

    def build(self, info: DatasetInfo) -> keras.Model:
        synchronized = keras.layers.BatchNormalization(synchronized=True)
        return keras.Sequential([super().build(info), Penalty(), synchronized])

    def heads(self, model: keras.Model) -> dict[str, Head]:
        return {}


@dataclass(frozen=True)
class StoppedTask(TinyTask):
    """Its process gets a signal while it starts; of several workers, the last one does."""

    signal_name: str = "SIGTERM"

    def build(self, info: DatasetInfo) -> keras.Model:
        cluster = Cluster.from_environment()
        if cluster is None or cluster.index == len(cluster) - 1:
            os.kill(os.getpid(), signal.Signals[self.signal_name])
        return super().build(info)
