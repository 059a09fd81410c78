"""Runs augmentation ops over a batch, in tf.data on the host or in the training step.

    ops = (Rotate(), Perspective(), Brightness(), Noise(probability=0.5))
    examples = augment(examples, ops, seeds)

`geometric`, `photometric` and `corruption`, beside this module, hold the ops. What becomes of an
example depends on its image, boxes and seed alone, never on its row or on the batch: on a CPU,
outside XLA, to the last bit.
"""

import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

from pipeline.augmentation.geometric import GeometricOp, move
from pipeline.augmentation.stateless_random import fold_in


class Op(Protocol):
    """What an op is: any callable of this form; a function will do."""

    def __call__(self, examples: dict[str, Any], seeds: Any, /) -> dict[str, Any]:
        """Changes a batch.

        Args:
          examples: "image" float32 [n, height, width, channels] in 0…1, of which n may be unknown
            while tracing; "boxes", where there are any, float32 [n, max_boxes, 4] of (ymin, xmin,
            ymax, xmax) as fractions of the image, rows of 0 after the last; other keys.
          seeds: int64 [n], non-negative and below 2**32. `stateless_random` makes random numbers of
            them. They are the op's own: another place in the chain gets others.

        Returns:
          The same keys, shapes and dtypes. An image may leave 0…1: it is clipped.
        """


def augment(examples: dict[str, Any], ops: Sequence[Op], seeds: Any) -> dict[str, Any]:
    """Applies ops in order; neighbouring geometric ones resample the image once.

    Args:
      examples: as for `Op`, but "image" may also be uint8; float32 must be in 0…1.
      ops: what to apply; none returns the examples as they are.
      seeds: int64 [n], well mixed, non-negative and below 2**32.

    Returns:
      The examples, the image in the dtype it came in; uint8 is rounded.

    Raises:
      ValueError: the image is neither uint8 nor float32, or has no static height, width and
        channels.
    """
    if not ops:
        return examples
    image = examples["image"]
    _check(image)
    if image.dtype == tf.uint8:
        examples = {**examples, "image": tf.cast(image, tf.float32) * (1 / 255)}
    places = zip(ops, (fold_in(seeds, place) for place in range(len(ops))), strict=True)
    for geometric, group in itertools.groupby(
        places, lambda each: isinstance(each[0], GeometricOp)
    ):
        chain = list(group)
        if geometric:
            examples = move(examples, *zip(*chain, strict=True))
            continue
        for op, op_seeds in chain:
            examples = op(examples, op_seeds)
            clipped = tf.clip_by_value(examples["image"], 0.0, 1.0)
            examples = {**examples, "image": clipped}
    if image.dtype == tf.uint8:
        # Numbers are positive, so that cutting off after adding a half rounds; tf.round is slower.
        examples = {**examples, "image": tf.cast(examples["image"] * 255 + 0.5, tf.uint8)}
    return examples


def _check(image: Any) -> None:
    if image.dtype not in (tf.uint8, tf.float32):
        raise ValueError(
            f"image of dtype {image.dtype.name} can't be augmented: give uint8, or float32 in 0…1"
        )
    if image.shape.rank != 4 or None in image.shape[1:].as_list():
        raise ValueError(
            f"image of shape {image.shape} can't be augmented: give batches [n, height, width, "
            "channels] whose height, width and channels are known while tracing"
        )
