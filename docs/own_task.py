"""A task of one's own: reads the total off a receipt. See `tillroll.Task`."""

import dataclasses

import keras
import tensorflow as tf

from tillroll import InputConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TotalReader:
    """Estimates the label `total`, below 0 for refunds, on a log scale (`--label total:float`)."""

    size: int = 128
    filters: int = 32

    def inputs(self, info):
        return InputConfig(height=self.size, width=self.size, features=("image", "total"))

    def build(self, info):
        image = keras.Input((self.size, self.size, 3))
        hidden = keras.layers.Conv2D(self.filters, 3, 2, activation="relu")(image)
        hidden = keras.layers.Conv2D(self.filters, 3, 2, activation="relu")(hidden)
        hidden = keras.layers.GlobalAveragePooling2D()(hidden)
        return keras.Model(image, keras.layers.Dense(1, dtype="float32")(hidden))

    def loss(self, outputs, batch):
        total = batch["total"]
        return tf.abs(outputs[:, 0] - tf.sign(total) * tf.math.log1p(tf.abs(total)))

    def metrics(self, outputs, batch):
        error = tf.abs(self.predictions(outputs)["total"] - batch["total"])
        return {"within_a_tenth": tf.cast(error <= 0.1 * tf.abs(batch["total"]), tf.float32)}

    def predictions(self, outputs):
        scaled = outputs[:, 0]
        return {"total": tf.sign(scaled) * tf.math.expm1(tf.abs(scaled))}
