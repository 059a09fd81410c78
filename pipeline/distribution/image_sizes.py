"""Steps on batches of images of several sizes, each traced with a size that is known."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from pipeline.config import Size

Batch = dict[str, tf.Tensor]


def switch_by_size(image: tf.Tensor, sizes: Sequence[Size], branch: Callable[[Size], Any]) -> Any:
    """Calls a function with the size of a batch of images, in the graph.

    The graph has a branch for each size, in which shapes are known while tracing.

    Args:
      image: [..., height, width, channels], of one of the sizes.
      sizes: the sizes.
      branch: makes the graph of a size; the results of all sizes have the same structure.
    """
    is_size = tf.reduce_all(tf.shape(image)[-3:-1] == tf.constant(sizes), axis=-1)
    # An image of another size would take the first branch, which refuses it.
    number = tf.argmax(tf.cast(is_size, tf.int32), output_type=tf.int32)
    return tf.switch_case(number, [functools.partial(branch, size) for size in sizes])


def with_size(batch: Batch, size: Size) -> Batch:
    """Tells the graph the size of the images of a batch, [..., height, width, channels].

    Raises:
      tf.errors.InvalidArgumentError: they have another size, when the graph runs.
    """
    image = batch["image"]
    shape = [*[None] * (image.shape.rank - 3), *size, None]
    return {**batch, "image": tf.ensure_shape(image, shape)}


def step_by_size(
    strategy: tf.distribute.Strategy,
    batch: dict[str, Any],
    sizes: Sequence[Size],
    step: Callable[[dict[str, Any]], Any],
) -> Any:
    """Calls a step of all replicas with a batch whose images have one of several sizes.

    Outside of the replicas: inside, they could exchange nothing in a branch of the graph.

    Args:
      strategy: the strategy, whose replicas have images of the same size.
      batch: per-replica features.
      sizes: the sizes; without any, the step is called as it is.
      step: calls `strategy.run` with the batch and returns tensors that are the same on all.
    """
    if not sizes:
        return step(batch)

    def branch(size: Size) -> Any:
        return step(strategy.run(functools.partial(with_size, size=size), (batch,)))

    return switch_by_size(strategy.experimental_local_results(batch["image"])[0], sizes, branch)
