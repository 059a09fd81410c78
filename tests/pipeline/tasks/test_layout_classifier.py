"""The classifier: what it is made of, what its options do, and that it learns."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf

from pipeline.config import Balance, InputConfig
from pipeline.records.info import load_info
from pipeline.tasks.base import heads_of
from pipeline.tasks.layout_classifier import LayoutClassifier
from tests.support.dataset_factory import LAYOUTS, write_dataset
from tests.support.training import train


def kinds(model: keras.Model) -> list[str]:
    return [type(layer).__name__ for layer in model.layers]


def test_starts_with_the_usual_net(directory: Path):
    model = LayoutClassifier().build(load_info(directory))
    assert model.input_shape == (None, 128, 128, 1)
    assert model.output_shape == (None, len(LAYOUTS))
    layers = ["Rescaling", "Conv2D", "MaxPooling2D", "Flatten", "Dense", "Dropout", "Dense"]
    assert kinds(model) == layers
    assert model.layers[1].filters == 32
    assert model.layers[4].units == 128


def test_options_shape_the_net(directory: Path):
    task = LayoutClassifier(depth="deep", size=64, width=8, units=16, dropout=0.25)
    model = task.build(load_info(directory))
    assert model.input_shape == (None, None, None, 1)  # any size
    filters = [layer.filters for layer in model.layers if hasattr(layer, "filters")]
    assert filters == [8, 8, 16, 16, 32, 32, 64, 64]
    assert model.layers[-3].units == 16
    assert model.layers[-2].rate == 0.25
    assert "BatchNormalization" not in kinds(model)


@pytest.mark.slow
@pytest.mark.parametrize("depth", ["shallow", "deep"])
def test_learns(directory: Path, depth: str):
    """Receipts of all layouts look alike but for how dark they are: only shares can be learned."""
    task = LayoutClassifier(size=32, width=8, units=16, depth=depth)
    _, losses, metrics = train(task, directory, steps=30)
    assert np.mean(losses[-5:]) < 0.85 * np.mean(losses[:2])
    assert metrics["accuracy"] >= 0.5


def test_an_example_is_judged_alone(directory: Path):
    task = LayoutClassifier(size=32, width=8, units=16, depth="deep")
    model = task.build(load_info(directory))
    images = np.random.default_rng(0).random((5, 32, 32, 1), np.float32)
    together = model(images, training=True)
    np.testing.assert_allclose(model(images[3:4], training=True)[0], together[3], atol=1e-5)


@pytest.mark.parametrize(
    ("smoothing", "label", "expected"),
    [
        (0.0, 0, -math.log(0.7)),
        (0.0, 2, -math.log(0.1)),
        (0.3, 0, -0.8 * math.log(0.7) - 0.1 * math.log(0.2) - 0.1 * math.log(0.1)),
    ],
)
def test_loss_accuracy_and_predictions(smoothing: float, label: int, expected: float):
    task = LayoutClassifier(label_smoothing=smoothing)
    logits = tf.math.log(tf.constant([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])) + 5
    batch = {"label": tf.constant([label, 2], tf.int64)}
    assert float(task.loss(logits, batch)[0]) == pytest.approx(expected, rel=1e-5)
    assert task.metrics(logits, batch)["accuracy"].numpy().tolist() == [label == 0, 1]
    predictions = task.predictions(logits)
    assert predictions["label"].numpy().tolist() == [0, 2]
    np.testing.assert_allclose(predictions["probability"], [0.7, 0.8], rtol=1e-5)


@pytest.mark.parametrize("depth", ["shallow", "deep"])
def test_mixed_precision_ends_in_float32(directory: Path, depth: str):
    policy = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    try:
        model = LayoutClassifier(size=32, width=8, depth=depth).build(load_info(directory))
    finally:
        keras.mixed_precision.set_dtype_policy(policy)
    assert model.layers[0].compute_dtype == "bfloat16"
    assert model(tf.zeros([2, 32, 32, 1])).dtype == tf.float32


def test_inputs(directory: Path):
    info = load_info(directory)
    config = LayoutClassifier(size=64, label="shop").inputs(info)
    assert (config.height, config.width, config.channels) == (64, 64, 1)
    assert config.label == config.balance.by == "shop"
    assert config.augmentations == ()
    assert LayoutClassifier(augment=True).inputs(info).augmentations


def test_logit_adjustment_counts_in_training_alone(directory: Path):
    """In the data, alpha to omega have 20, 9, 2 and 1 of 32 records."""
    info = load_info(directory)
    plain = LayoutClassifier(size=32, width=8, units=8)
    adjusted = dataclasses.replace(plain, logit_adjustment=0.5)
    model, other = adjusted.build(info), plain.build(info)
    other.set_weights(model.get_weights())  # the layer has none
    images = np.random.default_rng(0).random((3, 32, 32, 1), np.float32)
    logits = other(images)
    np.testing.assert_array_equal(model(images), logits)  # as in evaluations and exports
    expected = logits + 0.5 * np.log(np.array([20, 9, 2, 1]) / 32)
    np.testing.assert_allclose(model(images, training=True), expected, rtol=1e-5, atol=1e-6)
    assert heads_of(adjusted, model, info).keys() == {each.path for each in model.weights[-2:]}


def test_logit_adjustment_compensates_natural_shares():
    balanced, task = InputConfig(balance=Balance(alpha=0.5)), LayoutClassifier(logit_adjustment=1.0)
    LayoutClassifier().check_inputs(balanced)
    task.check_inputs(InputConfig())
    task.check_inputs(dataclasses.replace(balanced, sample_weights=True))
    with pytest.raises(
        ValueError, match=r"^logit_adjustment 1\.0 compensates .* an alpha of 0\.5 has changed them"
    ):
        task.check_inputs(balanced)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"depth": "deeper"}, "depth must be 'shallow' or 'deep', got 'deeper'"),
        ({"size": 16}, "size must be at least 32 pixels, got 16"),
        ({"width": 12}, "width must be a multiple of 8, got 12"),
        ({"units": 0}, "units must be at least 1, got 0"),
        ({"dropout": 1.0}, "dropout must be 0 to less than 1, got 1.0"),
        ({"label_smoothing": -0.1}, "label_smoothing must be 0 to less than 1, got -0.1"),
        ({"logit_adjustment": -1.0}, "logit_adjustment must be at least 0 and finite, got -1.0"),
        ({"logit_adjustment": math.nan}, "logit_adjustment must be at least 0 and finite, got nan"),
    ],
)
def test_errors(options: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        LayoutClassifier(**options)


def test_needs_a_category_of_several_values(directory: Path, tmp_path: Path):
    with pytest.raises(ValueError, match=r"'shop' is not a category of .*: choose one of layout"):
        LayoutClassifier(label="shop").build(load_info(directory))
    alike = write_dataset(tmp_path / "alike", counts={"alpha": 4})
    with pytest.raises(ValueError, match="has the same 'layout': there is nothing to classify"):
        LayoutClassifier().build(load_info(alike))
