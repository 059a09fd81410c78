"""Layers that are trained while all others stay as they are."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf

from pipeline.config import Balance
from pipeline.records.info import DatasetInfo, load_info
from pipeline.tasks.layout_classifier import LayoutClassifier
from pipeline.tasks.layout_embedding import LayoutEmbedding
from pipeline.training.checkpoints import Checkpoints
from pipeline.training.options import TrainOptions
from pipeline.training.trained_variables import choose_variables, train_only, trained_sentence
from pipeline.training.trainer import Trainer

TASK = LayoutClassifier(size=32, width=8, units=8, dropout=0.2)
OPTIONS = TrainOptions(global_batch_size=8, steps=8, weight_decay=0.5, train_only=("head",))


@pytest.fixture(scope="module")
def info(directory: Path) -> DatasetInfo:
    return load_info(directory)


def trainer(info: DatasetInfo, options: TrainOptions, task: Any = TASK) -> Trainer:
    return Trainer(
        task,
        tf.distribute.get_strategy(),
        info,
        options,
        lambda config: dataclasses.replace(config, balance=Balance(alpha=0)),
    )


def arrays(made: Trainer) -> list[np.ndarray]:
    return [variable.numpy() for variable in made.model.weights]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["head"], [4, 5]),
        (["dense_1"], [4, 5]),
        (["dense"], [2, 3]),
        (["conv2d", "head"], [0, 1, 4, 5]),
        (["head", "dense_1", "sequential/dense_1"], [4, 5]),
        (["dense_1/bias"], [5]),
        (["sequential"], [0, 1, 2, 3, 4, 5]),
    ],
    ids=str,
)
def test_names(info: DatasetInfo, names: list[str], chosen: list[int]):
    for _ in range(2):  # Keras gives the layers of the second model other numbers
        model = TASK.build(info)
    found = choose_variables(TASK, model, info, names, option="train_only")
    assert [id(each) for each in found] == [id(model.weights[number]) for number in chosen]


LAYERS = "sequential/conv2d, sequential/dense, sequential/dense_1"


@pytest.mark.parametrize("name", ["dens", "dense_2", "dense/", "", "*"])
def test_unknown_names(info: DatasetInfo, name: str):
    sentence = f"train_only names {name!r}, which is no layer: choose among head, {LAYERS}"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        trainer(info, dataclasses.replace(OPTIONS, train_only=("head", name)))


def test_a_task_without_heads(info: DatasetInfo):
    task = LayoutEmbedding(size=32, filters=8, units=8)
    with pytest.raises(ValueError, match=r"names 'head', but LayoutEmbedding.* tells no heads: ch"):
        choose_variables(task, task.build(info), info, ["head"], option="train_only")
    with pytest.raises(ValueError, match=r"train_only must be a tuple of names, such as .*'head'$"):
        TrainOptions(train_only="head")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [{}, {"accumulate": 2, "clip_norm": 0.1, "mixed_precision": True}],
    ids=["plain", "accumulated, clipped, mixed"],
)
def test_no_step_changes_the_others(info: DatasetInfo, options: dict[str, Any]):
    """Weight decay neither, which needs no gradient."""
    made = trainer(info, dataclasses.replace(OPTIONS, **options))
    before = arrays(made)
    assert trained_sentence(made.model) == (
        "training 2 of 6 variables, 36 of 14,524 weights: sequential/dense_1/kernel, "
        "sequential/dense_1/bias"
    )
    made.train(made.batches(), 3)
    changed = [not np.array_equal(*pair) for pair in zip(before, arrays(made), strict=True)]
    assert changed == [False] * 4 + [True] * 2


@pytest.mark.slow
def test_the_head_learns_as_one_on_fixed_features(info: DatasetInfo):
    """The first step by hand: the same gradient of the head, by the same optimizer."""
    task = dataclasses.replace(TASK, dropout=0.0)
    made = trainer(info, OPTIONS, task)
    batch = next(iter(made.batches()))
    kernel, bias = made.model.layers[-1].weights
    features = keras.Model(made.model.inputs, made.model.layers[-2].output)(batch["image"])
    with tf.GradientTape() as tape:
        logits = features @ kernel.value + bias.value
        loss = tf.reduce_mean(task.loss(logits, batch))
    gradients = tape.gradient(loss, [kernel.value, bias.value])
    alone = [keras.Variable(kernel.numpy()), keras.Variable(bias.numpy())]
    optimizer = OPTIONS.make_optimizer()
    optimizer.apply(gradients, alone)
    progress = made.train(made.batches(), 1)
    assert progress.losses[0] == pytest.approx(float(loss), rel=1e-5)
    for expected, variable in zip(alone, (kernel, bias), strict=True):
        np.testing.assert_allclose(variable.numpy(), expected.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_run_goes_on_with_the_same_layers(info: DatasetInfo, tmp_path: Path):
    def checkpoints(made: Trainer) -> Checkpoints:
        return Checkpoints(
            str(tmp_path),
            model=made.model,
            optimizer=made.optimizer,
            identity=made.identity(),
            keep=1,
        )

    whole = trainer(info, OPTIONS)
    batches = whole.batches()
    whole.train(batches, 2)
    checkpoints(whole).save(2)
    whole.train(batches, 2)
    resumed = trainer(info, OPTIONS)
    assert checkpoints(resumed).restore()
    resumed.train(resumed.batches(), 2)
    for expected, found in zip(arrays(whole), arrays(resumed), strict=True):
        np.testing.assert_array_equal(found, expected)
    for names, now in (((), "None"), (("dense",), "dense")):
        other = trainer(info, dataclasses.replace(OPTIONS, train_only=names))
        with pytest.raises(ValueError, match=f"\n  train_only: head then, {now} now\n"):
            checkpoints(other).restore()


def test_a_layer_that_is_not_trained_keeps_its_averages():
    normalize = keras.layers.BatchNormalization()
    inner = keras.Sequential([normalize, keras.layers.Dense(3, name="inner")], name="backbone")
    model = keras.Sequential([keras.Input((4,)), inner, keras.layers.Dense(2, name="last")])
    train_only(model, model.layers[-1].weights)
    images = np.random.default_rng(0).random((8, 4), np.float32)
    np.testing.assert_array_equal(model(images, training=True), model(images))
    np.testing.assert_array_equal(normalize.moving_mean, np.zeros(4))
    assert [each.name for each in model.trainable_variables] == ["kernel", "bias"]
    with pytest.raises(ValueError, match="train_only names no variable that gradients change, onl"):
        train_only(model, [normalize.moving_mean])
