"""Losses of layers, and arithmetic on gradients where a variable may have none."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from pipeline.tasks.base import TaskError

# In the order of the variables; None for a variable that the loss does not use, which an optimizer
# of Keras leaves as it is.
Gradients = list[tf.Tensor | None]


class ModelCall:
    """Calls a model in training, and collects the losses that its layers add."""

    def __init__(self, model: Any) -> None:
        """Takes a Keras model."""
        self._model = model
        self._newest: object = None

    def __call__(self, image: tf.Tensor) -> tuple[Any, tf.Tensor]:
        """Calls the model in a replica.

        Returns:
          The outputs, and the sum of `model.losses`, float32 []: regularizers of weights that are
          trained, `activity_regularizer` and `add_loss`.

        Raises:
          TaskError: a layer waits for the other replicas in the middle of the call, and another
            one adds a loss.
        """
        # MirroredStrategy traces replicas in turn. Where a layer waits for the others, the next
        # replica's call begins before this one's ends, and Keras clears the losses of all layers.
        self._newest = call = object()
        outputs = self._model(image, training=True)
        losses = self._model.losses
        of_weights = sum(weight.regularizer is not None for weight in self._model.trainable_weights)
        if self._newest is not call and len(losses) > of_weights:
            raise TaskError(
                f"{self._model.name} has a layer that adds a loss and another one that waits for "
                "all replicas, such as BatchNormalization(synchronized=True), so the replicas' "
                "losses get mixed up: leave out one of the two, or add the loss in the task's loss"
            )
        return outputs, sum((tf.reduce_sum(tf.cast(loss, tf.float32)) for loss in losses), 0.0)


def add_gradients(first: Gradients, second: Gradients) -> Gradients:
    """Adds the gradients of two losses, variable by variable."""
    return [_sum(*pair) for pair in zip(first, second, strict=True)]


def _sum(first: tf.Tensor | None, second: tf.Tensor | None) -> tf.Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return tf.add(first, second)  # not by "+", which sparse gradients lack


def clip_gradients(gradients: Gradients, clip_norm: float) -> Gradients:
    """Clips this replica's part of the gradients by the norm of the sum over all replicas.

    Args:
      gradients: this replica's part; the same variables have none on all replicas.
      clip_norm: longest gradient, over all variables.
    """
    parts = [gradient for gradient in gradients if gradient is not None]
    if not parts:
        return gradients
    # `tf.clip_by_global_norm` here would clip each part by the norm of that part.
    context = tf.distribute.get_replica_context()
    whole: Sequence[tf.Tensor] = context.all_reduce(tf.distribute.ReduceOp.SUM, parts)
    norm = tf.linalg.global_norm(whole)
    scale = clip_norm / tf.maximum(norm, clip_norm)
    return [None if gradient is None else gradient * scale for gradient in gradients]
