"""The task of embedding receipts, without labels, so that one layout's are near each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from pipeline.augmentation.chain import Op
from pipeline.augmentation.corruption import Blur, Erase, Noise
from pipeline.augmentation.geometric import Perspective, RandomZoom, Rotate, Scale, Shear
from pipeline.augmentation.photometric import Brightness, Contrast
from pipeline.config import InputConfig
from pipeline.records.info import DatasetInfo

_STRIDE = 16
_GROUPS = 8
_CONVOLUTIONS = ((1, 7, 4), (2, 3, 2), (4, 3, 2), (4, 3, 1))  # filters, kernel, stride
_MAX_UNITS = 4096  # of an embedding of which `beam_jobs.build` makes layouts
_VIEWS = 2
_NEIGHBORHOOD = 17  # pixels, about two lines of text
_MIN_PAPER = 0.05
_NEVER = -1e9  # finite, so that a row of it has a softmax
_AUGMENTATIONS: tuple[Op, ...] = (
    Rotate(degrees=(-6.0, 6.0)),
    Shear(),
    Scale(factor=(0.75, 1.15), aspect=(0.85, 1.18)),
    Perspective(displacement=0.04),
    RandomZoom(side=(0.88, 1.0)),
    Brightness(),
    Contrast(),
    Blur(sigma=(0.0, 1.0)),
    Noise(deviation=(0.0, 0.08)),
    Erase(area=(0.01, 0.04), gray=(0.8, 1.0)),
    Erase(area=(0.01, 0.04)),
)


@dataclass(frozen=True, kw_only=True)
class LayoutEmbedding:
    """A convolutional net whose vectors of two views of a receipt agree, and of others do not.

    Two views are two augmentations of one image. The loss is that of SimCLR: Chen, Kornblith,
    Norouzi and Hinton, "A Simple Framework for Contrastive Learning of Visual Representations"
    (2020). The others are those of the global batch, on all replicas, so it should have dozens of
    receipts. The options `accumulate` and `backup_workers` make parts of it, which are not compared
    with each other. Exported, the model is one for `beam_jobs.build --layout-from model=DIR`.

    Attributes:
      size: height and width of the grayscale images in pixels, a multiple of 16. They show the top
        of a receipt, where shops have their name and logo, over its full width.
      filters: filters of the first convolution, a multiple of 8; the second has twice as many, and
        the other two have four times as many.
      units: length of an embedding.
      temperature: divides cosine similarities in the loss. The lower it is, the more do the most
        similar of the other receipts count.
    """

    size: int = 256
    filters: int = 32
    units: int = 128
    temperature: float = 0.2

    def __post_init__(self) -> None:
        if self.size < 2 * _STRIDE or self.size % _STRIDE:
            raise ValueError(
                f"size must be a multiple of {_STRIDE} pixels, {2 * _STRIDE} or more, got "
                f"{self.size}"
            )
        if self.filters < _GROUPS or self.filters % _GROUPS:
            raise ValueError(f"filters must be a multiple of {_GROUPS}, got {self.filters}")
        if not 2 <= self.units <= _MAX_UNITS:
            raise ValueError(f"units must be 2 to {_MAX_UNITS:,}, got {self.units}")
        if not 0.01 <= self.temperature <= 10:
            raise ValueError(f"temperature must be 0.01 to 10, got {self.temperature}")

    def inputs(self, info: DatasetInfo) -> InputConfig:
        """Asks for two views of the top of each receipt, in grayscale, and for no label."""
        return InputConfig(
            height=self.size,
            width=self.size,
            channels=1,
            fit="top",
            features=("image",),
            augmentations=_AUGMENTATIONS,
            views=_VIEWS,
        )

    def build(self, info: DatasetInfo) -> keras.Model:
        """Builds the model, from images [n, size, size, 1] to vectors of length 1, [n, units].

        Both are float32.
        """
        image = keras.Input((self.size, self.size, 1), name="image")
        maps = _ink(image)
        for factor, kernel, stride in _CONVOLUTIONS:
            maps = keras.layers.Conv2D(
                self.filters * factor, kernel, stride, padding="same", use_bias=False
            )(maps)
            # Not normalized over the batch: outputs must not depend on the other examples.
            maps = keras.layers.ReLU()(keras.layers.GroupNormalization(_GROUPS)(maps))
        # Words and logos count wherever they stand, as photos shift and scale receipts.
        found = keras.layers.GlobalMaxPooling2D()(maps)
        # float32 under mixed precision too.
        embedding = keras.layers.Dense(self.units, dtype="float32")(found)
        return keras.Model(image, keras.layers.UnitNormalization(dtype="float32")(embedding))

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Computes the cross-entropy of finding the other view among all views, float32 [n].

        It is the mean over both views of a receipt.
        """
        cosines, others = _compare(outputs, batch)
        logits = cosines / self.temperature
        return _mean_of_views(tf.nn.sparse_softmax_cross_entropy_with_logits(others, logits))

    def metrics(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Computes how often the other view is the nearest of the batch: 0, 0.5 or 1, float32 [n].

        In a small batch, it is more often.
        """
        cosines, others = _compare(outputs, batch)
        nearest = tf.argmax(cosines, axis=1, output_type=tf.int32)
        return {"nearest": _mean_of_views(tf.cast(nearest == others, tf.float32))}

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Predicts the embedding, float32 [n, units], of length 1."""
        return {"embedding": outputs}


def _ink(image: Any) -> Any:
    """Computes how much darker pixels are than their surroundings, in 0…1; float32."""
    # In float32 under mixed precision too: small differences of numbers near 1. Rows and columns
    # one after the other are the same mean, and faster.
    mean = image
    for pool in ((1, _NEIGHBORHOOD), (_NEIGHBORHOOD, 1)):
        mean = keras.layers.AveragePooling2D(pool, 1, padding="same", dtype="float32")(mean)
    return keras.ops.relu(mean - image) / (mean + _MIN_PAPER)


def _compare(outputs: Any, batch: Mapping[str, Any]) -> tuple[Any, Any]:
    """Compares the views of this replica with those of all replicas.

    Returns:
      Their cosines, float32 [2 n, 2 n · replicas], and the column of the other view for each view,
      int32 [2 n]. No view is similar to itself, nor to examples of weight 0, which pad evaluations.
    """
    context = tf.distribute.get_replica_context()
    rows = tf.shape(outputs)[0]
    weights = tf.repeat(batch["weight"], _VIEWS) if "weight" in batch else tf.ones([rows])
    columns, first = outputs, 0
    if context.num_replicas_in_sync > 1:
        columns, weights = context.all_gather(columns, 0), context.all_gather(weights, 0)
        first = context.replica_id_in_sync_group * rows
    own = first + tf.range(rows)
    excluded = (own[:, None] == tf.range(tf.shape(columns)[0])) | (weights == 0)
    cosines = tf.matmul(outputs, columns, transpose_b=True)
    # Views of an example are neighbors: the others of 0, 1, 2, 3 are 1, 0, 3, 2.
    return tf.where(excluded, _NEVER, cosines), tf.bitwise.bitwise_xor(own, 1)


def _mean_of_views(values: Any) -> Any:
    """Averages values of views, [2 n], over the views of each example, [n]."""
    return tf.reduce_mean(tf.reshape(values, [-1, _VIEWS]), axis=1)
