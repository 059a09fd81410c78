"""Graphs that a trainer makes of the methods of tasks."""

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
from pipeline.training.options import TrainOptions
from pipeline.training.trainer import Trainer
from tests.support.tiny_task import TinyTask


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


def test_a_branch_over_tensors_needs_tf_function(directory: Path):
    with pytest.raises(TypeError, match=r"decorat.* @tf\.function"):
        losses(Branching(), directory)
    assert losses(Decorated(), directory) == pytest.approx(losses(TinyTask(), directory))
