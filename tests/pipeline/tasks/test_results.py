"""Shapes of what the methods of a task return."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.tasks.base import TaskError
from pipeline.tasks.results import losses_of, metrics_of, predictions_of

N = 4
IMAGE = tf.zeros([N, 8, 6, 1])
BATCH = {"image": IMAGE}
VALUES = tf.range(N, dtype=tf.float32)


@dataclass(frozen=True)
class Fixed:
    """Its methods return what they are given."""

    result: Any = None

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        return self.result

    metrics = loss

    def predictions(self, outputs: Any) -> Any:
        return self.result


def test_results_of_the_right_shape():
    np.testing.assert_array_equal(losses_of(Fixed(VALUES), None, BATCH), VALUES)
    metrics = metrics_of(Fixed({"hit": VALUES == 1, "iou": (VALUES, [0, 1, 1, 0])}), None, BATCH)
    values, weights = metrics["hit"]
    assert (values.numpy().tolist(), weights.numpy().tolist()) == ([0, 1, 0, 0], [1, 1, 1, 1])
    assert metrics["iou"][1].numpy().tolist() == [0, 1, 1, 0]
    assert metrics_of(Fixed({}), None, BATCH) == {}
    predictions = {
        "label": tf.range(N),
        "mask": tf.zeros([N, 2, 2]),
        "total": VALUES,
        "embedding": tf.zeros([N, 5]),
    }
    assert predictions_of(Fixed(predictions), None, IMAGE).keys() == predictions.keys()


@pytest.mark.parametrize(
    ("loss", "sentence"),
    [
        (
            0.5,
            "Fixed.loss has the shape [], and must have [n], here with n = 4: leave out the mean",
        ),
        (VALUES[:, None], "Fixed.loss has the shape [4, 1], and must have [n], here with n = 4"),
        (
            tf.zeros([N, 5]),
            "has the shape [4, 5], and must have [n], here with n = 4: take the mea",
        ),
        (VALUES[:3], "has the shape [3], and must have [n], here with n = 4"),
        (None, "Fixed.loss is None: return a tensor"),
    ],
    ids=["mean", "column", "pixels", "too few", "nothing"],
)
def test_losses_of_another_shape(loss: Any, sentence: str):
    with pytest.raises(TaskError, match=re.escape(sentence)):
        losses_of(Fixed(loss), None, BATCH)


def test_a_shape_that_is_known_only_when_the_graph_runs():
    @tf.function
    def graph(values: tf.Tensor) -> tf.Tensor:
        return losses_of(Fixed(values[values > 0]), None, BATCH)

    assert graph(VALUES + 1).shape == [N]
    with pytest.raises(tf.errors.InvalidArgumentError):
        graph(VALUES)


@pytest.mark.parametrize(
    ("metrics", "sentence"),
    [
        ({"accuracy": 0.5}, "Fixed.metrics['accuracy'] has the shape [], and must have [n]"),
        ({"iou": (VALUES, 1.0)}, "Fixed.metrics['iou'][1] has the shape [], and must have [n]"),
        ({"iou": (VALUES[:, None], VALUES)}, "Fixed.metrics['iou'][0] has the shape [4, 1]"),
        ({"iou": (VALUES,) * 3}, "is a tuple of 3: return values, or a pair of values and weights"),
        ({"iou": None}, "Fixed.metrics['iou'] is None"),
        ({"loss": VALUES}, "['loss'] would take the place of the task's loss: rename the metric"),
        ([VALUES], "Fixed.metrics returns an object of type list: return a dict by name"),
        (None, "Fixed.metrics returns an object of type NoneType"),
    ],
)
def test_metrics_of_another_shape(metrics: Any, sentence: str):
    with pytest.raises(TaskError, match=re.escape(sentence)):
        metrics_of(Fixed(metrics), None, BATCH)


@pytest.mark.parametrize(
    ("predictions", "sentence"),
    [
        ({"total": 3.0}, "Fixed.predictions['total'] has the shape [], and must have [n, …], here"),
        ({"total": VALUES[:2]}, "has the shape [2], and must have [n, …], here with n = 4"),
        ({"label": tf.zeros([N, 1], tf.int32)}, "has the shape [4, 1], and must have [n], here"),
        ({"label": VALUES}, "has the dtype float32, and ids of labels are integers: return, for"),
        ({"ink_mask": VALUES}, "has the shape [4], and must have [n, height, width]"),
        ({"total": None}, "Fixed.predictions['total'] is None"),
        (VALUES, "Fixed.predictions returns an object of type EagerTensor: return a dict by name"),
    ],
)
def test_predictions_of_another_shape(predictions: Any, sentence: str):
    with pytest.raises(TaskError, match=re.escape(sentence)):
        predictions_of(Fixed(predictions), None, IMAGE)
