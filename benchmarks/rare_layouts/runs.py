"""Training runs of the benchmark, and the accuracy of each layout along the way."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from benchmarks.harness.contenders import InSequence
from benchmarks.harness.weights import weights_of
from benchmarks.rare_layouts.settings import Setting
from pipeline.config import Balance, InputConfig
from pipeline.evaluation.evaluator import Evaluator
from pipeline.input.index_dataset import InputShard
from pipeline.input.input_pipeline import InputPipeline
from pipeline.records.info import DatasetInfo
from pipeline.tasks.layout_classifier import LayoutClassifier
from pipeline.training.options import TrainOptions
from pipeline.training.trainer import Trainer
from pipeline.warm_start import warm_start

_NEW_HEAD_SHARE = 0.2  # of the steps


@dataclass(frozen=True, kw_only=True)
class Training:
    """Options that all runs have in common.

    Attributes:
      task: the classifier.
      steps: steps of a run, over all of its stages.
      global_batch_size: records of a step.
      learning_rate: highest learning rate.
      evaluate_every: steps between two evaluations.
    """

    task: LayoutClassifier
    steps: int
    global_batch_size: int
    learning_rate: float
    evaluate_every: int

    def trainer(self, setting: Setting, info: DatasetInfo, *, seed: int) -> Trainer:
        """Makes the trainer of a setting, in the first of its stages."""
        steps = self.steps
        if setting.new_head:
            steps -= round(self.steps * _NEW_HEAD_SHARE)
        balance = _balance(setting.phases, self.steps)
        task = dataclasses.replace(self.task, logit_adjustment=setting.logit_adjustment)
        return self._trainer(task, info, self._options(seed, steps), balance)

    def head_trainer(self, before: Trainer, *, seed: int) -> Trainer:
        """Makes the trainer of a new head alone, behind the layers of another trainer."""
        options = dataclasses.replace(
            self._options(seed, round(self.steps * _NEW_HEAD_SHARE)), train_only=("head",)
        )
        trainer = self._trainer(self.task, before.info, options, Balance(alpha=0.0))
        warm_start(trainer.model, self.task, before.info, weights_of(before), without=("head",))
        return trainer

    def _options(self, seed: int, steps: int) -> TrainOptions:
        return TrainOptions(
            steps=steps,
            global_batch_size=self.global_batch_size,
            learning_rate=self.learning_rate,
            seed=seed,
            steps_per_call=self.evaluate_every,
        )

    def _trainer(
        self, task: LayoutClassifier, info: DatasetInfo, options: TrainOptions, balance: Balance
    ) -> Trainer:
        def balanced(config: InputConfig) -> InputConfig:
            return dataclasses.replace(config, balance=balance)

        return Trainer(task, tf.distribute.get_strategy(), info, options, balanced)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run, and the accuracy of each layout of the balanced test set, [layouts], by step."""

    setting: str
    seed: int
    accuracies: dict[int, list[float]]

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """Makes a run of its fields in JSON, where the steps became text."""
        accuracies = {int(step): found for step, found in fields["accuracies"].items()}
        return cls(setting=fields["setting"], seed=fields["seed"], accuracies=accuracies)


def train_run(
    name: str,
    setting: Setting,
    training: Training,
    datasets: tuple[DatasetInfo, DatasetInfo],
    seed: int,
) -> Run:
    """Trains a model, and evaluates it again and again; see `Run`."""
    train, test = datasets
    accuracies: dict[int, list[float]] = {}
    every = training.evaluate_every
    trainer = training.trainer(setting, train, seed=seed)
    _train(trainer, batches(setting, trainer), test, accuracies, every=every)
    if setting.new_head:
        done = trainer.step
        trainer = training.head_trainer(trainer, seed=seed)
        _train(trainer, trainer.batches(), test, accuracies, every=every, before=done)
    return Run(setting=name, seed=seed, accuracies=accuracies)


def batches(setting: Setting, trainer: Trainer) -> Iterator[Any]:
    """Makes the batches of a trainer in the order of a setting."""
    if setting.order == "dealt":
        return trainer.batches()
    return iter(buffered(trainer.info, trainer.config, trainer.options))


def buffered(info: DatasetInfo, config: InputConfig, options: TrainOptions) -> tf.data.Dataset:
    """Makes a dataset that draws batches from a buffer of 1,000 records, as tf.data's guide does.

    The shards are those of tillroll, each of which holds its share of every layout. Where records
    are stored as they came, a buffer mixes worse.
    """
    pipeline = InputPipeline.load(info, "train", options.global_batch_size, config)
    in_sequence: Any = InSequence(pipeline.table.paths, in_memory=False)
    shuffled = dataclasses.replace(pipeline, reader=in_sequence, pixels=None)
    return shuffled.training(InputShard(), seed=options.seed, start_step=0)


def _balance(phases: Sequence[tuple[float, float]], steps: int) -> Balance:
    if len(phases) == 1:
        return Balance(alpha=phases[0][0])
    return Balance(alpha=tuple((alpha, round(share * steps)) for alpha, share in phases))


def _train(
    trainer: Trainer,
    batches: Iterator[Any],
    test: DatasetInfo,
    accuracies: dict[int, list[float]],
    *,
    every: int,
    before: int = 0,
) -> None:
    evaluator = Evaluator(
        trainer.task,
        trainer.strategy,
        test,
        model=trainer.model,
        config=trainer.config,
        global_batch_size=trainer.options.global_batch_size,
    )
    while trainer.step < trainer.options.steps:
        trainer.train(batches, min(every, trainer.options.steps - trainer.step))
        found: npt.NDArray[np.float64] = evaluator.evaluate("test").by_layout["accuracy"]
        accuracies[before + trainer.step] = found.tolist()
