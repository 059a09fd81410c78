"""The classifier of the benchmark: small enough for dozens of runs on two cores."""

from dataclasses import dataclass

import keras

from pipeline.tasks.layout_classifier import LayoutClassifier

_STAGES = 4


@dataclass(frozen=True, kw_only=True)
class StridedClassifier(LayoutClassifier):
    """The layout classifier with convolutions that halve the image, each with twice the filters."""

    def _shallow(self) -> list[keras.Layer]:
        layers: list[keras.Layer] = []
        for stage in range(_STAGES):
            layers.append(
                keras.layers.Conv2D(
                    self.width << stage,
                    5 if stage == 0 else 3,
                    strides=2,
                    padding="same",
                    activation="relu",
                    kernel_initializer="he_normal",
                )
            )
        return [*layers, keras.layers.Flatten()]
