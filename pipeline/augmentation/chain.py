"""Runs augmentation ops over a batch, in tf.data on the host or in the training step.

    ops = (Rotate(), Perspective(), Brightness(), Noise(probability=0.5))
    examples = augment(examples, ops, seeds)

The ops are in `geometric`, `photometric` and `corruption`. The result for an example depends on its
image, boxes and seed alone, not on its row or on the rest of the batch: on a CPU to the last bit,
unless XLA compiles a training step that calls `augment`.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from pipeline.augmentation.compiled import MAX_CHANNELS, finish, warp_packed
from pipeline.augmentation.corruption import Noise
from pipeline.augmentation.geometric import GeometricOp, composed, move, strictest
from pipeline.augmentation.photometric import PointwiseOp
from pipeline.augmentation.pixels import to_float32, to_float32_on_cpu, to_uint8
from pipeline.augmentation.projective import warp_boxes
from pipeline.augmentation.stateless_random import applies, fold_in

_VIEWS = 1 << 21  # seeds of views are derived by numbers that no position in a chain has
_SeededOp = tuple[Any, tf.Tensor]  # an op, and its seeds, int64 [n]


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
    examples: dict[str, tf.Tensor],
    ops: Sequence[Op],
    seeds: tf.Tensor,
    *,
    dtype: str | None = None,
    compiled: bool = False,
) -> dict[str, tf.Tensor]:
    """Applies ops in order; neighboring geometric ops resample the image once.

    Args:
      examples: as in `Op`, but "image" may also be uint8; float32 must be in 0…1.
      ops: the ops; without any, the examples are returned as they are.
      seeds: int64 [n], well mixed, non-negative and below 2**32.
      dtype: "uint8" or "float32", of the image afterwards; None for the dtype of the input.
      compiled: on the CPU, of uint8 images of up to 4 channels, XLA compiles the ops that a chain
        begins with, as far as these are geometric ones, then `Brightness`, `Contrast` and `Gamma`,
        and then `Noise`. This takes a fraction of the time, but rounds resampled images to uint8,
        and the places where their pixels come from to 1/256 of a pixel.

    Returns:
      The examples.

    Raises:
      ValueError: the image is neither uint8 nor float32, or its height, width or channels are
        unknown while tracing.
    """
    if not ops:
        return examples
    image = examples["image"]
    _check(image)
    wanted = tf.as_dtype(dtype or image.dtype)
    # Seeds by the position in the chain: two Noise ops add different noise.
    seeded_ops = [(op, fold_in(seeds, position)) for position, op in enumerate(ops)]
    if compiled and image.dtype == tf.uint8 and image.shape[3] <= MAX_CHANNELS:
        examples, seeded_ops = _begin_compiled(examples, seeded_ops, wanted)
    else:
        examples = {**examples, "image": to_float32(image)}
    for geometric, group in itertools.groupby(
        seeded_ops, lambda seeded: isinstance(seeded[0], GeometricOp)
    ):
        # Neighbors in one resampling: each blurs the image, and takes most of the time.
        if geometric:
            examples = move(examples, *zip(*group, strict=True))
            continue
        examples = _apply(examples, group)
    if wanted == tf.uint8 and examples["image"].dtype == tf.float32:
        examples = {**examples, "image": to_uint8(examples["image"])}
    return examples


def augment_views(
    examples: dict[str, tf.Tensor],
    ops: Sequence[Op],
    seeds: tf.Tensor,
    views: int,
    *,
    dtype: str | None = None,
    compiled: bool = False,
) -> dict[str, tf.Tensor]:
    """Applies ops to copies of a batch, independently for each copy.

    Args:
      examples: as in `augment`.
      ops: as in `augment`.
      seeds: as in `augment`.
      views: number of copies; with 1, this is `augment`.
      dtype: as in `augment`.
      compiled: as in `augment`.

    Returns:
      The examples, with "image" and "boxes" of all copies, [n, views, ...]. The first copy is that
      of `augment`, and so are all other features.
    """
    copies = []
    for view in range(views):
        view_seeds = fold_in(seeds, _VIEWS + view) if view else seeds
        copies.append(augment(examples, ops, view_seeds, dtype=dtype, compiled=compiled))
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


def _begin_compiled(
    examples: dict[str, tf.Tensor], seeded_ops: list[_SeededOp], dtype: tf.DType
) -> tuple[dict[str, tf.Tensor], list[_SeededOp]]:
    """Applies the ops at the beginning of a chain to uint8 images, as far as they are compiled.

    Args:
      examples: "image" is uint8.
      seeded_ops: the chain.
      dtype: the image's after the chain, into which it is converted if no op is left.

    Returns:
      The examples and the ops that are left, to which the image is given as float32.
    """
    pixels = examples["image"]
    height, width, channels = shape = pixels.shape[1:].as_list()
    geometric, rest = _leading(seeded_ops, GeometricOp)
    pointwise, rest = _leading(rest, PointwiseOp)
    if geometric:
        ops, op_seeds = zip(*geometric, strict=True)
        forward = composed(ops, op_seeds, height, width)
        pixels = warp_packed(pixels, forward)
        examples = warp_boxes(examples, forward, (height, width), strictest(ops))
    noise = None
    if rest and isinstance(rest[0][0], Noise):
        (op, op_seeds), *rest = rest
        noise = op.draw(op_seeds, applies(op_seeds, op.probability), shape)
    if len(rest) == len(seeded_ops):
        return {**examples, "image": to_float32_on_cpu(pixels)}, rest
    tables = _tables(pointwise, tf.shape(pixels)[0])
    dtype = tf.float32 if rest else dtype
    image = finish(pixels, tables, noise, channels=channels, dtype=dtype)
    image.set_shape(examples["image"].shape)
    return {**examples, "image": image}, rest


def _leading(seeded_ops: list[_SeededOp], kind: type) -> tuple[list[_SeededOp], list[_SeededOp]]:
    """Splits a chain behind the ops of a kind at its beginning."""
    leading = list(itertools.takewhile(lambda seeded: isinstance(seeded[0], kind), seeded_ops))
    return leading, seeded_ops[len(leading) :]


def _tables(seeded_ops: Iterable[_SeededOp], count: tf.Tensor) -> tf.Tensor:
    """Applies ops to all levels of uint8, for `count` images; returns float32 [count, 256]."""
    # As images of 256 × 1 pixels: the ops do to a level what they do to pixels of that level.
    levels = to_float32(tf.constant(np.arange(256, dtype=np.uint8)[None, :, None, None]))
    images = tf.tile(levels, [count, 1, 1, 1])
    return _apply({"image": images}, seeded_ops)["image"][:, :, 0, 0]


def _apply(examples: dict[str, tf.Tensor], seeded_ops: Iterable[_SeededOp]) -> dict[str, tf.Tensor]:
    """Applies ops one after the other to float32 images, by TensorFlow."""
    for op, op_seeds in seeded_ops:
        examples = _checked(op, examples, op(examples, op_seeds))
        clipped = tf.raw_ops.ClipByValue(  # tf.clip_by_value takes two passes
            t=examples["image"], clip_value_min=0.0, clip_value_max=1.0
        )
        examples = {**examples, "image": clipped}
    return examples


def _checked(op: Op, examples: Mapping[str, tf.Tensor], changed: Any) -> dict[str, tf.Tensor]:
    """Returns what an op has made of examples, in their shapes.

    Raises:
      ValueError: it is something else than `Op` says.
    """
    name = getattr(op, "__name__", type(op).__name__)
    if not isinstance(changed, Mapping):
        raise ValueError(
            f"augmentation {name} returned an object of type {type(changed).__name__}: return the "
            "dictionary of examples, such as {**examples, 'image': image}"
        )
    result = dict(changed)
    for key, given in examples.items():
        if key not in result:
            raise ValueError(f"augmentation {name} left out {key!r}: return {{**examples, …}}")
        returned = tf.convert_to_tensor(result[key])
        if returned.dtype != given.dtype or not returned.shape.is_compatible_with(given.shape):
            raise ValueError(
                f"augmentation {name} returned {key!r} as {returned.dtype.name} {returned.shape}, "
                f"and got {given.dtype.name} {given.shape}: keep dtype and shape, as InputConfig "
                "sets the size"
            )
        # A function of Python's, such as tf.numpy_function, does not tell the shape.
        is_told = returned.shape == given.shape
        result[key] = returned if is_told else tf.ensure_shape(returned, given.shape)
    return result


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
