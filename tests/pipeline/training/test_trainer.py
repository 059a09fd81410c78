"""Graphs that a trainer makes of the methods of tasks."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

import keras
import tensorflow as tf

from pipeline.config import Balance
from pipeline.records.info import DatasetInfo, load_info
from pipeline.tasks.base import Task, TaskError
from pipeline.tasks.layout_classifier import LayoutClassifier
from pipeline.tasks.text_detector import TextDetector
from pipeline.train import main
from pipeline.training.options import TrainOptions
from pipeline.training.trainer import Trainer
from tests.support.dataset_factory import write_dataset
from tests.support.tiny_task import AnySizeTask, TinyTask


def losses(task: Task, directory: Path) -> tuple[float, ...]:
    options = TrainOptions(global_batch_size=8)
    trainer = Trainer(task, tf.distribute.get_strategy(), load_info(directory), options)
    return trainer.train(trainer.batches(), 2).losses


@dataclass(frozen=True)
class Branching(TinyTask):
    """A loss with Python's `if` over a tensor."""

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        loss = super().loss(outputs, batch)
        if tf.reduce_mean(loss) < 0:
            loss = -loss
        return loss


@dataclass(frozen=True)
class Decorated(Branching):
    """The same, as tf.function."""

    @tf.function
    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        loss = TinyTask.loss(self, outputs, batch)
        if tf.reduce_mean(loss) < 0:
            loss = -loss
        return loss


@pytest.mark.slow
def test_phases_count_steps_and_not_their_parts(directory: Path):
    """With backup workers, a step takes several batches."""
    balance = Balance(alpha=((1.0, 0), (0.0, 2)))
    trainer = Trainer(
        TinyTask(),
        tf.distribute.get_strategy(),
        load_info(directory),
        TrainOptions(global_batch_size=16),
        lambda config: replace(config, balance=balance, sample_weights=True),
    )
    trainer._steps.batches_per_step = 2
    batches = trainer.batches()
    weights = [next(batches)["weight"].numpy() for _ in range(6)]
    assert [len(each) for each in weights] == [8] * 6
    assert [bool((each == 1).all()) for each in weights] == [True] * 4 + [False] * 2


@pytest.mark.slow
def test_a_branch_over_tensors_needs_tf_function(directory: Path):
    with pytest.raises(TypeError, match=r"decorat.* @tf\.function"):
        losses(Branching(), directory)
    assert losses(Decorated(), directory) == pytest.approx(losses(TinyTask(), directory))


@dataclass(frozen=True)
class Faulty(TinyTask):
    """One of its methods is wrong."""

    method: str = ""

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        loss = super().loss(outputs, batch)
        return tf.reduce_mean(loss) if self.method == "loss" else loss

    def metrics(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        if self.method == "metrics":
            raise NotImplementedError("metrics")
        return super().metrics(outputs, batch)

    def predictions(self, outputs: Any) -> dict[str, Any]:
        return {"label": outputs} if self.method == "predictions" else super().predictions(outputs)


def asked(directory: Path, run_dir: Path, method: str) -> list[str]:
    task = [f"--task={__name__}:Faulty", f"--model.method={method}"]
    options = ["--steps=2", "--global-batch-size=8", "--evaluation-split=train", "--quiet"]
    return [str(directory), f"--run-dir={run_dir}", *task, *options]


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("loss", "Faulty.loss has the shape [], and must have [n], here with n = 8: leave out the"),
        ("predictions", "Faulty.predictions['label'] has the shape [8, 4], and must have [n]"),
    ],
)
@pytest.mark.slow
def test_a_task_of_wrong_shapes_takes_no_step(
    directory: Path, tmp_path: Path, method: str, sentence: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        main(asked(directory, tmp_path, method))
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "log.jsonl").exists()


@pytest.mark.slow
def test_an_error_of_a_task_comes_before_the_first_step(directory: Path, tmp_path: Path):
    with pytest.raises(NotImplementedError, match="metrics"):
        main(asked(directory, tmp_path, "metrics"))
    assert not (tmp_path / "log.jsonl").exists()


def test_a_check_changes_nothing_and_the_first_evaluation_uses_its_graph(directory: Path):
    options = TrainOptions(global_batch_size=8)
    made, other = (
        Trainer(TinyTask(), tf.distribute.get_strategy(), load_info(directory), options)
        for _ in range(2)
    )
    initial = [weight.copy() for weight in made.model.get_weights()]
    made.check_task("train")
    assert made.step == 0
    np.testing.assert_equal(made.model.get_weights(), initial)
    graphs = made._evaluator._step.experimental_get_tracing_count()
    assert made.evaluate("train").averages == other.evaluate("train").averages
    assert made._evaluator._step.experimental_get_tracing_count() == graphs == 1


class Net(keras.Model):
    """A model that makes its variables when it is called."""

    def __init__(self, values: int) -> None:
        super().__init__()
        self.flatten, self.dense = keras.layers.Flatten(), keras.layers.Dense(values)

    def call(self, image: Any) -> Any:
        return self.dense(self.flatten(image))


class LateNet(Net):
    """A model that only looks built."""

    def build(self, shape: Any) -> None:
        pass


@dataclass(frozen=True)
class Unbuilt(TinyTask):
    """A model without an Input."""

    kind: str = "subclass"

    def build(self, info: DatasetInfo) -> keras.Model:
        if self.kind == "sequential":
            return keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(4)])
        if self.kind == "late":
            model = LateNet(4)
            model.build((None, self.size, self.size, 1))
            return model
        model = Net(4)
        if self.kind == "called":
            model(keras.Input((24, 24, 1)))  # as the error says
        return model


@pytest.mark.parametrize("kind", ["subclass", "sequential", "late"])
def test_a_model_without_variables_is_refused(directory: Path, kind: str):
    with pytest.raises(
        TaskError, match=r"before: call model\(keras\.Input\(\(24, 24, 1\)\)\) in bu"
    ):
        with_buckets(Unbuilt(kind=kind), directory, None).check_task("train")


def test_a_model_that_was_called_is_trained(directory: Path):
    made = with_buckets(Unbuilt(kind="called"), directory, None)
    made.check_task("train")
    initial = made.model.get_weights()[0].copy()
    assert len(made.train(made.batches(), 2).losses) == 2
    assert not np.allclose(made.model.get_weights()[0], initial)


def with_buckets(
    task: Task, directory: Path, buckets: int | tuple[tuple[int, int], ...] | None
) -> Trainer:
    return Trainer(
        task,
        tf.distribute.get_strategy(),
        load_info(directory),
        TrainOptions(global_batch_size=8),
        lambda config: dataclasses.replace(config, buckets=buckets),
    )


@pytest.mark.parametrize(
    ("task", "sizes", "refused"),
    [
        (TinyTask(), ((24, 24), (48, 16)), "48 × 16"),
        (TextDetector(), ((64, 48), (80, 40)), "80 × 40"),
        (LayoutClassifier(size=32), ((64, 32),), "64 × 32"),
    ],
    ids=["dense", "text detector", "shallow classifier"],
)
def test_a_model_that_takes_no_such_images_is_refused(
    directory: Path, task: Task, sizes: tuple[tuple[int, int], ...], refused: str
):
    with pytest.raises(ValueError, match=f"can't take images of {refused} pixels, one of the size"):
        with_buckets(task, directory, sizes)


def test_a_checkpoint_remembers_the_sizes(tmp_path: Path):
    """And not their number, as those of another dataset would be others."""
    directory = write_dataset(tmp_path / "receipts", sizes=((60, 40), (90, 30)))
    trainer = with_buckets(AnySizeTask(size=64), directory, 2)
    assert trainer.config.buckets == ((80, 48), (112, 32))
    now, then = (
        with_buckets(AnySizeTask(size=48), directory, buckets).identity()
        for buckets in (((64, 48),), None)
    )
    changed = {change.name: (change.then, change.now) for change in now.stream_changes(then)}
    assert changed == {
        "input.buckets.0.0": (None, 64),
        "input.buckets.0.1": (None, 48),
    }
    assert not with_buckets(AnySizeTask(size=48), directory, None).identity().stream_changes(then)
