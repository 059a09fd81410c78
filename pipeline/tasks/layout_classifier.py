"""The task of classifying receipts by layout, or by another category."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import keras
import tensorflow as tf

from pipeline.augmentation.presets import WEAK
from pipeline.config import Balance, InputConfig
from pipeline.records.info import DatasetInfo
from pipeline.tasks.base import Head
from pipeline.tasks.logit_adjustment import LogitAdjustment

_DEEP_STAGES = 4
_GROUPS = 8


@dataclass(frozen=True, kw_only=True)
class LayoutClassifier:
    """A convolutional net with a softmax over the values of a category.

    Attributes:
      label: the category, the layout or a label of type category; its values are spread evenly over
        batches.
      size: height and width of the grayscale images in pixels.
      depth: "shallow" is one convolution, pooled, and a dense layer; "deep" is four stages of two
        normalized convolutions each, averaged over the image, and a dense layer.
      width: filters of the first convolution, a multiple of 8; each further stage of "deep"
        doubles them.
      units: units of the dense layer.
      dropout: fraction of the dense layer's outputs set to 0 while training.
      label_smoothing: share of the target that is spread over all values.
      logit_adjustment: tau of the logit-adjusted loss, which compensates the natural shares of the
        values; 1 is the balanced softmax, 0 the usual loss. It needs a balance with alpha 1, or
        sample weights.
      augment: rotates, scales, tilts and lights images at random.
    """

    label: str = "layout"
    size: int = 128
    depth: Literal["shallow", "deep"] = "shallow"
    width: int = 32
    units: int = 128
    dropout: float = 0.0
    label_smoothing: float = 0.0
    logit_adjustment: float = 0.0
    augment: bool = False

    def __post_init__(self) -> None:
        if self.depth not in ("shallow", "deep"):
            raise ValueError(f"depth must be 'shallow' or 'deep', got {self.depth!r}")
        if self.size < 32:
            raise ValueError(f"size must be at least 32 pixels, got {self.size}")
        if self.width < _GROUPS or self.width % _GROUPS:
            raise ValueError(f"width must be a multiple of {_GROUPS}, got {self.width}")
        if self.units < 1:
            raise ValueError(f"units must be at least 1, got {self.units}")
        for name in ("dropout", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be 0 to less than 1, got {getattr(self, name)}")
        if not 0 <= self.logit_adjustment < math.inf:
            raise ValueError(
                f"logit_adjustment must be at least 0 and finite, got {self.logit_adjustment}"
            )

    def inputs(self, info: DatasetInfo) -> InputConfig:
        """Asks for grayscale images and the ids of their category."""
        return InputConfig(
            height=self.size,
            width=self.size,
            channels=1,
            label=self.label,
            features=("image", "label"),
            augmentations=WEAK if self.augment else (),
            balance=Balance(by=self.label),
        )

    def check_inputs(self, config: InputConfig) -> None:
        """Checks that logit adjustment meets the shares that it compensates.

        Raises:
          ValueError: a balance has changed them, which makes rare values more frequent already.
        """
        # Sample weights undo the balance: weighted, examples have their natural shares again.
        if self.logit_adjustment and not (config.balance.is_natural or config.sample_weights):
            raise ValueError(
                f"logit_adjustment {self.logit_adjustment} compensates the natural shares, and an "
                f"alpha of {config.balance.alpha_text} has changed them: set one of the two to its "
                "default, or sample_weights, which undo the balance"
            )

    def build(self, info: DatasetInfo) -> keras.Model:
        """Builds the model, from images float32 [n, size, size, 1] to logits float32 [n, values].

        With depth "deep", it takes images of any size.

        Raises:
          ValueError: the category has a single value, or does not exist.
        """
        values = len(info.vocabulary(self.label))
        if values < 2:
            raise ValueError(
                f"every receipt of {info.data_dir} has the same {self.label!r}: there is nothing "
                "to classify, choose another label"
            )
        side = None if self.depth == "deep" else self.size
        return keras.Sequential(
            [
                keras.Input((side, side, 1), name="image"),
                # Paper is 0 and ink 1: the dense layer learns little from a sheet of equal inputs.
                keras.layers.Rescaling(-1.0, offset=1.0),
                *(self._shallow() if self.depth == "shallow" else self._deep()),
                keras.layers.Dense(self.units, activation="relu"),
                keras.layers.Dropout(self.dropout),
                keras.layers.Dense(values, dtype="float32"),  # float32 under mixed precision too
                *self._adjustment(info),
            ]
        )

    def heads(self, model: keras.Model) -> dict[str, Head]:
        """Returns the variables of the last dense layer, which has an output for each value."""
        last = next(layer for layer in reversed(model.layers) if layer.weights)
        return {variable.path: Head(self.label) for variable in last.weights}

    def _adjustment(self, info: DatasetInfo) -> list[keras.Layer]:
        if not self.logit_adjustment:
            return []
        counts = info.split("train").category_counts[self.label]
        return [LogitAdjustment(counts, tau=self.logit_adjustment, dtype="float32")]

    def _shallow(self) -> list[keras.Layer]:
        return [
            keras.layers.Conv2D(self.width, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
        ]

    def _deep(self) -> list[keras.Layer]:
        layers = []
        for stage in range(_DEEP_STAGES):
            for _ in range(2):
                layers += [
                    keras.layers.Conv2D(self.width << stage, 3, padding="same", use_bias=False),
                    # Not normalized over the batch: outputs must not depend on the other examples.
                    keras.layers.GroupNormalization(_GROUPS),
                    keras.layers.ReLU(),
                ]
            layers.append(keras.layers.MaxPooling2D())
        return [*layers, keras.layers.GlobalAveragePooling2D()]

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Computes the cross-entropy of each example, float32 [n]."""
        values = outputs.shape[-1]
        target = tf.one_hot(batch["label"], values) * (1 - self.label_smoothing)
        target += self.label_smoothing / values
        return tf.nn.softmax_cross_entropy_with_logits(target, outputs)

    def metrics(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Computes the accuracy: 1 if the most likely value is right, else 0; float32 [n]."""
        predicted = tf.argmax(outputs, axis=-1)
        return {"accuracy": tf.cast(predicted == batch["label"], tf.float32)}

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Predicts the id of the most likely value, int64 [n], and its probability, float32 [n]."""
        probabilities = tf.nn.softmax(outputs)
        return {
            "label": tf.argmax(outputs, axis=-1),
            "probability": tf.reduce_max(probabilities, axis=-1),
        }
