"""The task of finding text on receipts: a mask, learned from the boxes of the lines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from pipeline.augmentation.presets import WEAK
from pipeline.config import InputConfig
from pipeline.records.info import DatasetInfo
from pipeline.tasks.base import MetricValue

_STRIDE = 4
_COARSEST = 16
_GROUPS = 8


@dataclass(frozen=True, kw_only=True)
class TextDetector:
    """A small U-Net whose outputs are logits of text, one for each 4 by 4 pixels.

    Attributes:
      height, width: size of the grayscale images in pixels, multiples of 16.
      filters: filters of the first convolution, a multiple of 8; they double each time the image
        is halved.
      max_boxes: maximum number of lines of a receipt; further lines count as background.
      augment: rotates, scales and tilts images and boxes, and lights images, at random.
    """

    height: int = 512
    width: int = 384
    filters: int = 16
    max_boxes: int = 256
    augment: bool = True

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            value = getattr(self, name)
            if value < _COARSEST or value % _COARSEST:
                raise ValueError(f"{name} must be a multiple of {_COARSEST} pixels, got {value}")
        if self.filters < _GROUPS or self.filters % _GROUPS:
            raise ValueError(f"filters must be a multiple of {_GROUPS}, got {self.filters}")
        if self.max_boxes < 1:
            raise ValueError(f"max_boxes must be at least 1, got {self.max_boxes}")

    def inputs(self, info: DatasetInfo) -> InputConfig:
        """Asks for grayscale images and the boxes of their lines.

        Raises:
          ValueError: no record of the dataset has a box.
        """
        if not any(info.values(split, "image/object/bbox/xmin") for split in info.manifest.splits):
            raise ValueError(
                f"no record of {info.data_dir} has boxes, from which TextDetector learns: build "
                "the dataset from a table with a column of boxes, or choose another task"
            )
        return InputConfig(
            height=self.height,
            width=self.width,
            channels=1,
            features=("image", "boxes"),
            max_boxes=self.max_boxes,
            augmentations=WEAK if self.augment else (),
        )

    def build(self, info: DatasetInfo) -> keras.Model:
        """Builds the model, from images [n, height, width, 1] to logits [n, height/4, width/4, 1].

        Both are float32. It takes images of any size whose sides are multiples of 16 pixels.
        """
        image = keras.Input((None, None, 1), name="image")
        at_2 = _convolution(image, self.filters, strides=2)
        at_4 = _convolution(_convolution(at_2, 2 * self.filters, strides=2), 2 * self.filters)
        at_8 = _convolution(_convolution(at_4, 4 * self.filters, strides=2), 4 * self.filters)
        at_16 = _convolution(_convolution(at_8, 8 * self.filters, strides=2), 8 * self.filters)
        up_8 = _merge(at_16, at_8, 4 * self.filters)
        up_4 = _merge(up_8, at_4, 2 * self.filters)
        # float32 under mixed precision too.
        return keras.Model(image, keras.layers.Conv2D(1, 1, dtype="float32")(up_4))

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Computes the mean cross-entropy of the cells plus 1 - Dice coefficient, float32 [n].

        All receipts have text, so a receipt without boxes was not annotated: its loss is 0.
        """
        logits = outputs[..., 0]
        mask = text_mask(batch["boxes"], *logits.shape[1:])
        entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels=mask, logits=logits)
        predicted = tf.sigmoid(logits)
        common, both = _area(predicted * mask), _area(predicted + mask)
        # The 1 keeps a division by 0 away from receipts without boxes.
        losses = tf.reduce_mean(entropy, axis=(1, 2)) + 1 - (2 * common + 1) / (both + 1)
        return losses * _has_boxes(batch)

    def metrics(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, MetricValue]:
        """Computes the intersection over union of the cells, for receipts that have boxes."""
        logits = outputs[..., 0]
        mask = text_mask(batch["boxes"], *logits.shape[1:]) >= 0.5
        predicted = logits >= 0
        common = _area(tf.cast(predicted & mask, tf.float32))
        either = _area(tf.cast(predicted | mask, tf.float32))
        return {"iou": (common / tf.maximum(either, 1), _has_boxes(batch))}

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Predicts the probability of text in each cell, float32 [n, height/4, width/4]."""
        return {"mask": tf.sigmoid(outputs[..., 0])}


def _has_boxes(batch: Mapping[str, Any]) -> Any:
    """Returns 1 for examples with a box that is not empty, else 0; float32 [n]."""
    return tf.cast(tf.reduce_any(batch["boxes"] != 0, axis=(1, 2)), tf.float32)


def text_mask(boxes: Any, height: int, width: int) -> Any:
    """Draws boxes as a mask.

    A box covers the fraction of a cell's row times the fraction of its column. So the sum over the
    boxes is a product of matrices, and no array of the size boxes × cells is needed.

    Args:
      boxes: float32 [n, max_boxes, 4] of (ymin, xmin, ymax, xmax) in 0…1; rows of 0 draw nothing.
      height, width: cells of the mask.

    Returns:
      The covered fraction of each cell, float32 [n, height, width]. Where boxes overlap, their
      fractions are added, up to 1.
    """
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
    rows = _covered(ymin, ymax, height)
    columns = _covered(xmin, xmax, width)
    return tf.minimum(tf.einsum("nbh,nbw->nhw", rows, columns), 1.0)


def _covered(start: Any, end: Any, cells: int) -> Any:
    """Computes the fraction of each cell between two points in 0…1: float32 [n, boxes, cells]."""
    # From 0.3 to 0.8 of 4 cells is from 1.2 to 3.2: it covers 0, 0.8, 1 and 0.2 of them.
    first = tf.range(cells, dtype=tf.float32)
    start, end = start[..., None] * cells, end[..., None] * cells
    return tf.maximum(tf.minimum(end, first + 1) - tf.maximum(start, first), 0.0)


def _area(cells: Any) -> Any:
    return tf.reduce_sum(cells, axis=(1, 2))


def _convolution(inputs: Any, filters: int, *, strides: int = 1) -> Any:
    outputs = keras.layers.Conv2D(filters, 3, strides, padding="same", use_bias=False)(inputs)
    # Not normalized over the batch: outputs must not depend on the other examples.
    return keras.layers.ReLU()(keras.layers.GroupNormalization(_GROUPS)(outputs))


def _merge(coarse: Any, fine: Any, filters: int) -> Any:
    """Enlarges coarse features and merges them with fine ones."""
    enlarged = keras.layers.UpSampling2D()(coarse)
    return _convolution(keras.layers.Concatenate()([enlarged, fine]), filters)
