"""Runs augmentation ops over a batch, in tf.data on the host or in the training step.

    ops = (Rotate(), Perspective(), Brightness(), Noise(probability=0.5))
    examples = augment(examples, ops, seeds)

The ops are in `geometric`, `photometric` and `corruption`. The result for an example depends on its
image, boxes and seed alone, not on its row or on the rest of the batch: on a CPU, outside XLA, to
the last bit.
"""

import itertools
from collections.abc import Sequence
from typing import Protocol

import tensorflow as tf

from pipeline.augmentation.geometric import GeometricOp, move
from pipeline.augmentation.pixels import to_float32, to_uint8
from pipeline.augmentation.stateless_random import fold_in

_VIEWS = 1 << 21  # seeds of views are derived by numbers that no position in a chain has


class Op(Protocol):
    """An augmentation op: any callable of this signature, such as a function."""

    def __call__(self, examples: dict[str, tf.Tensor], seeds: tf.Tensor, /) -> dict[str, tf.Tensor]:
        """Changes a batch.

        Args:
          examples: "image" float32 [n, height, width, channels] in 0…1, of which n may be unknown
            while tracing; perhaps "boxes", float32 [n, max_boxes, 4] of (ymin, xmin, ymax, xmax) as
            fractions of the image, padded with rows of 0; other keys.
          seeds: int64 [n], non-negative and below 2**32. `stateless_random` makes random numbers of
            them. Each position in a chain gets other seeds.

        Returns:
          The same keys, shapes and dtypes. Values of the image outside 0…1 are clipped later.
        """


def augment(
    examples: dict[str, tf.Tensor], ops: Sequence[Op], seeds: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Applies ops in order; neighboring geometric ops resample the image once.

    Args:
      examples: as in `Op`, but "image" may also be uint8; float32 must be in 0…1.
      ops: the ops; without any, the examples are returned as they are.
      seeds: int64 [n], well mixed, non-negative and below 2**32.

    Returns:
      The examples, with the image in the dtype of the input.

    Raises:
      ValueError: the image is neither uint8 nor float32, or its height, width or channels are
        unknown while tracing.
    """
    if not ops:
        return examples
    image = examples["image"]
    _check(image)
    examples = {**examples, "image": to_float32(image)}
    # Seeds by the position in the chain: two Noise ops add different noise.
    seeded_ops = [(op, fold_in(seeds, position)) for position, op in enumerate(ops)]
    for geometric, group in itertools.groupby(
        seeded_ops, lambda seeded: isinstance(seeded[0], GeometricOp)
    ):
        # Neighbors in one resampling: each blurs the image, and takes most of the time.
        if geometric:
            examples = move(examples, *zip(*group, strict=True))
            continue
        for op, op_seeds in group:
            examples = op(examples, op_seeds)
            clipped = tf.clip_by_value(examples["image"], 0.0, 1.0)
            examples = {**examples, "image": clipped}
    if image.dtype == tf.uint8:
        examples = {**examples, "image": to_uint8(examples["image"])}
    return examples


def augment_views(
    examples: dict[str, tf.Tensor], ops: Sequence[Op], seeds: tf.Tensor, views: int
) -> dict[str, tf.Tensor]:
    """Applies ops to copies of a batch, independently for each copy.

    Args:
      examples: as in `augment`.
      ops: as in `augment`.
      seeds: as in `augment`.
      views: number of copies; with 1, this is `augment`.

    Returns:
      The examples, with "image" and "boxes" of all copies, [n, views, ...]. The first copy is that
      of `augment`, and so are all other features.
    """
    copies = [
        augment(examples, ops, fold_in(seeds, _VIEWS + view) if view else seeds)
        for view in range(views)
    ]
    if views == 1:
        return copies[0]
    moved = [name for name in ("image", "boxes") if name in examples]
    return {
        **copies[0],
        **{name: tf.stack([copy[name] for copy in copies], axis=1) for name in moved},
    }


def views_as_examples(image: tf.Tensor) -> tf.Tensor:
    """Returns images [n, views, height, width, channels] as [n · views, ...]; others unchanged."""
    if image.shape.rank == 4:
        return image
    return tf.reshape(image, [-1, *image.shape[2:]])


def _check(image: tf.Tensor) -> None:
    if image.dtype not in (tf.uint8, tf.float32):
        raise ValueError(
            f"an image of dtype {image.dtype.name} can't be augmented: give uint8, or float32 in "
            "0…1"
        )
    if image.shape.rank != 4 or None in image.shape[1:].as_list():
        raise ValueError(
            f"an image of shape {image.shape} can't be augmented: give batches [n, height, width, "
            "channels] whose height, width and channels are known while tracing"
        )
