"""Weights that a new model takes over from a trained one, and what it says of the rest."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf

from pipeline import export, train
from pipeline.records.info import DatasetInfo, load_info
from pipeline.serving.saved_model import DESCRIPTION
from pipeline.tasks.base import Head, heads_of
from pipeline.tasks.layout_classifier import LayoutClassifier
from pipeline.tasks.text_detector import TextDetector
from pipeline.training.trained_variables import comparable_names
from pipeline.warm_start import TrainedWeights, load_weights, warm_start
from tests.support.dataset_factory import write_dataset
from tests.support.tiny_task import TinyTask

pytestmark = pytest.mark.slow

TASK = LayoutClassifier(size=32, width=8, units=8, dropout=0.2)
OLD = {"beta": 9, "delta": 5, "omega": 3}
NEW = {"alpha": 2, "beta": 9, "beta-2": 4, "delta": 5, "gamma": 1}


@dataclasses.dataclass(frozen=True)
class Trained:
    """A run on a dataset with the layouts of `OLD`, and its exported model."""

    run_dir: Path
    model: Path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("trained")
    data = write_dataset(folder / "old", counts=OLD)
    run_dir, model = folder / "run", folder / "model"
    options = [
        f"--model.{name}={getattr(TASK, name)}" for name in ("size", "width", "units", "dropout")
    ]
    common = ["--quiet", "--global-batch-size=8", "--evaluation-split=train", "--steps=4"]
    assert train.main([str(data), f"--run-dir={run_dir}", *common, *options]) == 0
    assert export.main([str(run_dir), f"--output={model}"]) == 0
    return Trained(run_dir, model)


@pytest.fixture(scope="module")
def info(tmp_path_factory: pytest.TempPathFactory) -> DatasetInfo:
    """A dataset in which values came, went and moved."""
    return load_info(write_dataset(tmp_path_factory.mktemp("new") / "new", counts=NEW))


def arrays(model: Any) -> list[np.ndarray]:
    return [variable.numpy() for variable in model.weights]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["dense/kernel", "dense_1/kernel"], ["dense/kernel", "dense_1/kernel"]),
        (["dense_2/kernel", "dense_3/kernel"], ["dense/kernel", "dense_1/kernel"]),
        (["dense_9/kernel", "dense_10/kernel"], ["dense/kernel", "dense_1/kernel"]),
        (["conv2d_4/bias", "dense/bias"], ["conv2d/bias", "dense/bias"]),
        (["net_1/stage_2/w", "net_1/stage_4/w"], ["net/stage/w", "net/stage_2/w"]),
        (["a/kernel", "a/kernel"], ["a/kernel", "a/kernel (2)"]),
    ],
)
def test_names_do_not_depend_on_the_models_before(paths: list[str], names: list[str]):
    assert comparable_names(paths) == names


@pytest.mark.parametrize("source", ["run_dir", "model"])
def test_a_head_is_taken_over_by_the_names_of_its_values(
    trained: Trained, info: DatasetInfo, source: str
):
    for _ in range(2):  # Keras gives the layers of the second model other numbers
        model = TASK.build(info)
    weights = load_weights(str(getattr(trained, source)))
    lines = warm_start(model, TASK, info, weights)
    assert lines == [
        f"began with {weights.path}: 6 of 6 variables taken",
        "  by the names of layout: 2 of 5 values taken (sequential/dense_1/kernel, "
        "sequential/dense_1/bias); new, with the mean of the others: alpha, beta-2, gamma; "
        "not in this dataset: omega",
    ]
    old, now = list(weights.arrays.values()), arrays(model)
    for number in range(4):
        np.testing.assert_array_equal(now[number], old[number])
    assert info.layouts == ("alpha", "beta", "beta-2", "delta", "gamma")
    for number in (4, 5):
        beta, delta = old[number][..., 0], old[number][..., 1]
        mean = (beta + delta) / 2
        expected = np.stack([mean, beta, mean, delta, mean], axis=-1)
        np.testing.assert_allclose(now[number], expected, rtol=1e-6)
    images = np.random.default_rng(0).random((50, 32, 32, 1), np.float32)
    predicted = {info.layouts[each] for each in model(images).numpy().argmax(-1)}
    assert predicted <= {"beta", "delta"}  # as before, until something is learned of the others


def test_variables_of_another_shape_are_left_and_named(trained: Trained, info: DatasetInfo):
    wider = dataclasses.replace(TASK, units=16)
    model = wider.build(info)
    fresh = arrays(model)
    lines = warm_start(model, wider, info, load_weights(str(trained.run_dir)))
    assert lines[0].endswith(": 3 of 6 variables taken")
    assert [line for line in lines if "not taken" in line] == [
        "  not taken: sequential/dense/kernel, as its shape is [1800, 16] here and [1800, 8] there",
        "  not taken: sequential/dense/bias, as its shape is [16] here and [8] there",
        "  not taken: sequential/dense_1/kernel, as its shape is [16, 5] here and [8, 3] there",
    ]
    for number in (2, 3, 4):
        np.testing.assert_array_equal(arrays(model)[number], fresh[number])


def test_a_model_of_another_task_has_nothing_to_begin_with(trained: Trained, info: DatasetInfo):
    task = TextDetector(height=32, width=32, filters=8)
    model = task.build(info)
    fresh = arrays(model)
    with pytest.raises(ValueError, match=r"no variable of .* fits the model:\n  not taken: conv2d"):
        warm_start(model, task, info, load_weights(str(trained.run_dir)))
    for before, now in zip(fresh, arrays(model), strict=True):
        np.testing.assert_array_equal(now, before)


def test_a_category_that_the_source_lacks(trained: Trained, info: DatasetInfo):
    weights = load_weights(str(trained.model))
    without = dataclasses.replace(weights, vocabularies={})
    lines = warm_start(TASK.build(info), TASK, info, without)
    assert (
        f"  not taken: sequential/dense_1/bias, as {weights.path} knows no category layout" in lines
    )


def test_a_category_of_which_no_value_is_left(trained: Trained, info: DatasetInfo):
    weights = load_weights(str(trained.model))
    others = dataclasses.replace(weights, vocabularies={"layout": ["x", "y", "z"]})
    lines = warm_start(TASK.build(info), TASK, info, others)
    reason = f"{weights.path} knows none of the values of layout"
    assert f"  not taken: sequential/dense_1/bias, as {reason}" in lines


def test_a_head_that_is_left_out_begins_anew(trained: Trained, info: DatasetInfo):
    model = TASK.build(info)
    fresh = arrays(model)
    weights = load_weights(str(trained.run_dir))
    lines = warm_start(model, TASK, info, weights, without=("head",))
    assert lines == [
        f"began with {weights.path}: 4 of 6 variables taken",
        "  not taken: sequential/dense_1/kernel, as --init-without leaves it out",
        "  not taken: sequential/dense_1/bias, as --init-without leaves it out",
    ]
    old = list(weights.arrays.values())
    for number, expected in enumerate([*old[:4], *fresh[4:]]):
        np.testing.assert_array_equal(arrays(model)[number], expected)
    with pytest.raises(ValueError, match="--init-without names 'dense_9', which is no layer: "):
        warm_start(model, TASK, info, weights, without=("dense_9",))


def test_what_is_not_used_is_named(trained: Trained, info: DatasetInfo):
    weights = load_weights(str(trained.run_dir))
    more = dataclasses.replace(weights, arrays={**weights.arrays, "other/bias": np.zeros(3)})
    lines = warm_start(TASK.build(info), TASK, info, more)
    assert lines[-1] == "  not used: other/bias, which the model lacks"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("description", "does not tell the names of its variables"),
        ("names", "does not tell the names of its variables"),
        ("variables", "the variables of .* can't be read"),
        ("index", "the variables of .* can't be read"),
        ("all", "is neither the folder of a training run .* nor an exported model"),
    ],
)
def test_what_can_not_be_read_is_said(trained: Trained, tmp_path: Path, damage: str, message: str):
    model = tmp_path / "model"
    if damage != "all":
        tf.io.gfile.makedirs(str(model))
        for source in sorted(trained.model.rglob("*")):
            target = model / source.relative_to(trained.model)
            if source.is_dir():
                target.mkdir()
            else:
                target.write_bytes(source.read_bytes())
    if damage == "description":
        (model / DESCRIPTION).unlink()
    elif damage == "names":
        (model / DESCRIPTION).write_text(json.dumps({"label": "layout"}))
    elif damage == "variables":
        data = next((model / "variables").glob("variables.data*"))
        data.write_bytes(b"x" * data.stat().st_size)
    elif damage == "index":
        (model / "variables" / "variables.index").unlink()
    with pytest.raises(ValueError, match=message):
        load_weights(str(model))


LAYOUT_HEAD = Head("layout")


@dataclasses.dataclass(frozen=True)
class Telling(TinyTask):
    """A task that tells one head."""

    path: str = ""
    head: Head = LAYOUT_HEAD

    def heads(self, model: keras.Model) -> dict[str, Head]:
        return {self.path: self.head}


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (("nothing/kernel", Head("layout")), "'nothing/kernel', which is none of the model's"),
        (("net/dense/bias", Head("language")), "'language' is not a category"),
        (("net/dense/kernel", Head("layout", 0)), r"axis 0 .* has 5 values, .* shape \[576, 5\]"),
        (("net/dense/bias", Head("layout", 1)), r"axis 1 .* shape \[5\]"),
    ],
)
def test_heads_that_do_not_fit_are_refused(info: DatasetInfo, told: tuple[str, Head], message: str):
    layers = keras.Sequential(
        [keras.Input((24, 24, 1)), keras.layers.Flatten(), keras.layers.Dense(5, name="dense")],
        name="net",
    )
    path, head = told
    with pytest.raises(ValueError, match=message):
        heads_of(Telling(path=path, head=head), layers, info)


def test_a_head_may_stand_along_any_axis(info: DatasetInfo):
    table = keras.layers.Embedding(5, 3, name="table")
    table.build()
    model = keras.Sequential([table])
    [path] = [variable.path for variable in model.weights]
    source = TrainedWeights(
        path="elsewhere",
        arrays={path: np.arange(6.0).reshape(2, 3)},
        vocabularies={"layout": ["gamma", "beta"]},
    )
    warm_start(model, Telling(path=path, head=Head("layout", 0)), info, source)
    expected = np.full((5, 3), (1.5, 2.5, 3.5))
    expected[1], expected[4] = (3, 4, 5), (0, 1, 2)
    np.testing.assert_array_equal(arrays(model)[0], expected)
