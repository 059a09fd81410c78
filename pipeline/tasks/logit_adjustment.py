"""Logit adjustment: training with logits to which the prior of each value is added."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np


@keras.saving.register_keras_serializable(package="tillroll")
class LogitAdjustment(keras.layers.Layer):
    """Adds tau · log(prior) to the logits while training, and nothing otherwise.

    With a softmax cross-entropy behind it, the layer makes the logit-adjusted loss of Menon,
    Jayasumana, Rawat, Jain, Veit and Kumar, "Long-tail learning via logit adjustment" (2021). With
    tau 1 it is the balanced softmax of Ren et al., "Balanced meta-softmax for long-tailed visual
    recognition" (2020). What the prior explains need not be learned: predictions from the logits as
    they are, without it, are those for values that are equally frequent.

    The prior of a value is its share of the training records. With 98, 1 and 1 of them, tau 1 adds
    log 0.98, log 0.01 and log 0.01. A value without a training record counts as one with a single
    record: with none its logit would be -inf, and nothing would teach the model not to predict it.

    The layer has no variables.
    """

    def __init__(self, counts: Sequence[int], *, tau: float = 1.0, **kwargs: Any) -> None:
        """Makes the layer.

        Args:
          counts: training records of each value, [values].
          tau: factor of the logarithms.
          kwargs: as of `keras.layers.Layer`.
        """
        super().__init__(**kwargs)
        self.counts, self.tau = tuple(map(int, counts)), float(tau)
        positive = np.maximum(np.array(counts, np.float64), 1)
        self._offset = (self.tau * np.log(positive / positive.sum())).astype(np.float32)

    def call(self, logits: Any, training: bool = False) -> Any:
        """Returns the logits, [n, values], adjusted where `training` is True."""
        return logits + keras.ops.cast(self._offset, logits.dtype) if training else logits

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the shape of the logits."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of which Keras makes the layer anew."""
        return {**super().get_config(), "counts": list(self.counts), "tau": self.tau}
