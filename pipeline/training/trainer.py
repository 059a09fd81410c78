"""The training loop, one for every strategy."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy.typing as npt
import tensorflow as tf

from pipeline.augmentation.chain import augment
from pipeline.dataset import is_parameter_server, make_distributed_dataset
from pipeline.evaluation.evaluator import Evaluation, Evaluator, images
from pipeline.input.features import text_features
from pipeline.records.info import DatasetInfo
from pipeline.tasks.base import Task
from pipeline.training.non_finite import check_weights
from pipeline.training.options import TrainOptions
from pipeline.training.parameter_server import Coordinated
from pipeline.training.run_identity import RunIdentity
from pipeline.training.synchronous import InSync


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What some steps came to.

    Attributes:
      step: steps done since the start of the run.
      losses: of the steps just done, in order.
      waited_s: seconds that they waited for input.
    """

    step: int
    losses: tuple[float, ...]
    waited_s: float


class Trainer:
    """A model, its optimiser and the steps that train and evaluate it under a strategy."""

    def __init__(
        self,
        task: Task,
        strategy: tf.distribute.Strategy,
        info: DatasetInfo,
        options: TrainOptions,
        config: Callable[[Any], Any] | None = None,
    ) -> None:
        """Makes model and optimiser under the strategy.

        Args:
          task: what is trained.
          strategy: any.
          info: the dataset.
          options: how.
          config: changes the task's InputConfig, such as its balance and augmentations.
        """
        self.task, self.strategy, self.info, self.options = task, strategy, info, options
        inputs = task.inputs(info)
        self.config = config(inputs) if config else inputs
        if self.config.sample_weights:
            features = dict.fromkeys((*(self.config.features or ()), "weight"))
            self.config = dataclasses.replace(self.config, features=tuple(features))
        names = self.config.features
        if names is None or "image" not in names:
            raise ValueError(f"{task} asks for the features {names}: name some, with 'image'")
        text = text_features(info, self.config)
        if text and isinstance(strategy, tf.distribute.TPUStrategy):
            raise ValueError(f"TPUs take no text: leave {', '.join(text)} out of {task}'s features")
        replicas = strategy.num_replicas_in_sync
        if options.global_batch_size % (replicas * options.accumulate):
            raise ValueError(
                f"global_batch_size {options.global_batch_size} can't be divided by {replicas} "
                f"replicas that accumulate {options.accumulate} parts: choose a multiple of "
                f"{replicas * options.accumulate}"
            )
        keras.utils.set_random_seed(options.seed)
        with strategy.scope():
            self.model = self._build()
            self.optimizer = options.make_optimizer()
            self.optimizer.build(self.model.trainable_variables)
        self._way: InSync | Coordinated = InSync(strategy, self.model)
        if is_parameter_server(strategy):
            counter = self.optimizer.iterations
            self._way = Coordinated(strategy, self.model, counter=counter, build=self._build)
        self._evaluator = Evaluator(
            task,
            self._way.evaluation_strategy,
            info,
            model=self._way.evaluation_model,
            config=self.config,
            global_batch_size=options.global_batch_size,
        )

    def _build(self) -> keras.Model:
        policy = keras.config.dtype_policy()
        keras.config.set_dtype_policy(
            "mixed_bfloat16" if self.options.mixed_precision else "float32"
        )
        model = self.task.build(self.info)
        keras.config.set_dtype_policy(policy)
        return model

    @property
    def step(self) -> int:
        """Steps done."""
        return int(self.optimizer.iterations.numpy())

    def identity(self) -> RunIdentity:
        """What a checkpoint of this run belongs to."""
        return RunIdentity.of(self.task, self.info, self.config, self.options)

    def check_weights(self) -> None:
        """Checks that what a checkpoint would hold is finite; every worker must call it.

        Raises:
          NonFiniteError: it is not.
        """
        check_weights((*self.model.weights, *self.optimizer.variables), step=self.step)

    def agree(self, told: bool) -> bool:
        """Whether any worker says so; every worker must ask."""
        return self._way.agree(told)

    def is_same(self, number: int) -> bool:
        """Whether it is the same number on every worker; every worker must ask."""
        return self._way.is_same(number)

    def batches(self) -> Any:
        """An iterator over training batches from the current step on."""
        start_step = self.step
        return self._way.batches(
            lambda: make_distributed_dataset(
                self.strategy,
                self.info.data_dir,
                global_batch_size=self.options.global_batch_size,
                config=self.config,
                seed=self.options.seed,
                start_step=start_step,
            )
        )

    def train(self, batches: Any, steps: int) -> Progress:
        """Takes steps; `batches` is the iterator of `batches()`."""
        losses, waited_s = self._way.take(self._train, batches, steps)
        return Progress(step=self.step, losses=tuple(losses), waited_s=waited_s)

    @tf.function
    def _train(self, batches: Any, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        losses = tf.TensorArray(tf.float32, steps)
        waited_s = tf.constant(0.0, tf.float64)
        for number in tf.range(steps):
            before = tf.timestamp()
            with tf.control_dependencies([before]):
                batch = next(batches)
            arrived = [
                tensor
                for each in batch.values()
                for tensor in self.strategy.experimental_local_results(each)
            ]
            with tf.control_dependencies(arrived):
                waited_s += tf.timestamp() - before
            loss = self.strategy.run(self._train_replica, (batch,))
            losses = losses.write(number, self.strategy.reduce("SUM", loss, axis=None))
        return losses.stack(), waited_s

    def _train_replica(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        if self.config.placement == "device":
            batch = augment(batch, self.config.augmentations, batch["seed"])
        variables = self.model.trainable_variables
        pieces = [tf.split(each, self.options.accumulate) for each in batch.values()]
        parts = [dict(zip(batch, part, strict=True)) for part in zip(*pieces, strict=True)]
        total = tf.constant(0.0)
        gradients: list[tf.Tensor] = []
        for part in parts:
            with tf.GradientTape() as tape:
                outputs = self.model(images(part), training=True)
                losses = tf.cast(self.task.loss(outputs, part), tf.float32)
                if "weight" in part:
                    losses *= part["weight"]
                loss = tf.reduce_sum(losses) / self.options.global_batch_size
            found = tape.gradient(loss, variables)
            sums = zip(gradients, found, strict=True) if gradients else ()
            gradients = [a + b for a, b in sums] or found
            total += loss
        self.optimizer.apply_gradients(zip(self._clipped(gradients), variables, strict=True))
        return total

    def _clipped(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """This replica's part of the gradient, which the optimiser adds up; clipped as a whole."""
        if self.options.clip_norm is None:
            return gradients
        context = tf.distribute.get_replica_context()
        whole = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        norm = tf.linalg.global_norm(whole)
        scale = self.options.clip_norm / tf.maximum(norm, self.options.clip_norm)
        return [each * scale for each in gradients]

    def evaluate(self, split: str) -> Evaluation:
        """Loss and metrics over a split."""
        self._way.prepare_evaluation()
        return self._evaluator.evaluate(split)

    def predict(self, image: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """What the task predicts from images; every worker must ask, for the same ones."""
        return self._evaluator.predict(image)
