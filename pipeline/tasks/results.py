"""Calls the methods of a task, and checks the shapes of their results."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from pipeline.tasks.base import Task, TaskError


def losses_of(task: Task, outputs: Any, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Computes the loss of each example, float32 [n].

    Args:
      task: the task.
      outputs: outputs of its model.
      batch: features by name, [n, ...], with "image".

    Raises:
      TaskError: the losses have another shape.
    """
    return _of_examples(f"{_name(task)}.loss", task.loss(outputs, batch), batch)


def metrics_of(
    task: Task, outputs: Any, batch: Mapping[str, tf.Tensor]
) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
    """Computes the metrics of each example by name: values and weights, both float32 [n].

    Args:
      task: the task.
      outputs: outputs of its model.
      batch: features by name, [n, ...], with "image".

    Raises:
      TaskError: a metric has another shape, or is named "loss".
    """
    method = f"{_name(task)}.metrics"
    metrics = {}
    for name, metric in _by_name(method, task.metrics(outputs, batch)).items():
        where = f"{method}[{name!r}]"
        if name == "loss":
            raise TaskError(f"{where} would take the place of the task's loss: rename the metric")
        if not isinstance(metric, tuple):
            values = _of_examples(where, metric, batch)
            metrics[name] = values, tf.ones_like(values)
        elif len(metric) == 2:
            values = _of_examples(f"{where}[0]", metric[0], batch)
            metrics[name] = values, _of_examples(f"{where}[1]", metric[1], batch)
        else:
            raise TaskError(
                f"{where} is a tuple of {len(metric)}: return values, or a pair of values and "
                "weights"
            )
    return metrics


def predictions_of(task: Task, outputs: Any, image: tf.Tensor) -> dict[str, tf.Tensor]:
    """Computes the predictions of each image by name, [n, ...].

    Args:
      task: the task.
      outputs: outputs of its model.
      image: [n, height, width, channels], of which the model has made the outputs.

    Raises:
      TaskError: a prediction has another shape, or labels are not integers.
    """
    method = f"{_name(task)}.predictions"
    predictions = {}
    for name, values in _by_name(method, task.predictions(outputs)).items():
        where = f"{method}[{name!r}]"
        tensor = _tensor(where, values)
        axes, rank = "[n, …]", tensor.shape.rank or 1
        if name == "label":
            axes, rank = "[n]", 1
        elif name.endswith("mask"):
            axes, rank = "[n, height, width]", 3
        images = image.shape[0]
        if not tensor.shape.is_compatible_with([images, *[None] * (rank - 1)]):
            raise TaskError(
                f"{where} has the shape {_text(tensor)}, and must have {axes}, here with n = "
                f"{images}: the first axis is that of the images"
            )
        if name == "label" and not tensor.dtype.is_integer:
            raise TaskError(
                f"{where} has the dtype {tensor.dtype.name}, and ids of labels are integers: "
                "return, for example, tf.argmax(logits, -1)"
            )
        predictions[name] = tensor
    return predictions


def _of_examples(where: str, values: Any, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Converts values of examples to float32 [n]."""
    tensor = _tensor(where, values)
    examples = batch["image"].shape[0]
    if not tensor.shape.is_compatible_with([examples]):
        repair = "take the mean over all axes but the first"
        if tensor.shape.rank == 0:
            repair = "leave out the mean over the batch, as reduction='none' of Keras' losses does"
        raise TaskError(
            f"{where} has the shape {_text(tensor)}, and must have [n], here with n = {examples}: "
            f"{repair}"
        )
    # Where the graph knows the shape only when it runs, it is checked then.
    return tf.ensure_shape(tf.cast(tensor, tf.float32), [examples])


def _by_name(method: str, results: Any) -> Mapping[str, Any]:
    if not isinstance(results, Mapping):
        raise TaskError(
            f"{method} returns an object of type {type(results).__name__}: return a dict by name, "
            "such as {}"
        )
    return results


def _tensor(where: str, values: Any) -> tf.Tensor:
    if values is None:
        raise TaskError(f"{where} is None: return a tensor")
    return tf.convert_to_tensor(values)


def _name(task: Task) -> str:
    return type(task).__name__


def _text(tensor: tf.Tensor) -> str:
    return str(tensor.shape.as_list()) if tensor.shape.rank is not None else "unknown"
