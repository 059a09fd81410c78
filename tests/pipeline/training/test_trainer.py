"""Graphs that a trainer makes of the methods of tasks."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

import tensorflow as tf

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


def test_a_branch_over_tensors_needs_tf_function(directory: Path):
    with pytest.raises(TypeError, match=r"decorat.* @tf\.function"):
        losses(Branching(), directory)
    assert losses(Decorated(), directory) == pytest.approx(losses(TinyTask(), directory))
