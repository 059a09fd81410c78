"""Graphs that a trainer makes of the methods of tasks."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

import tensorflow as tf

from pipeline.config import Balance
from pipeline.records.info import load_info
from pipeline.tasks.base import Task
from pipeline.tasks.layout_classifier import LayoutClassifier
from pipeline.tasks.text_detector import TextDetector
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
