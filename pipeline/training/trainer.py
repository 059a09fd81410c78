"""Training and evaluation steps, the same for every strategy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy.typing as npt
import tensorflow as tf

from pipeline.augmentation.chain import augment
from pipeline.augmentation.pixels import to_float32
from pipeline.dataset import make_distributed_dataset
from pipeline.distribution.parameter_server import is_parameter_server
from pipeline.evaluation.evaluator import Evaluation, Evaluator
from pipeline.input.features import text_features
from pipeline.records.info import DatasetInfo
from pipeline.tasks.base import Task
from pipeline.training.non_finite import check_weights
from pipeline.training.options import TrainOptions
from pipeline.training.parameter_server import ParameterServerSteps
from pipeline.training.run_identity import RunIdentity
from pipeline.training.synchronous import SynchronousSteps


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The result of some steps.

    Attributes:
      step: steps done since the start of the run.
      losses: losses of the steps just done, in order.
      waited_s: seconds that these steps waited for input.
      tracing_s: seconds in which TensorFlow made the graph of the step, before the first of them.
    """

    step: int
    losses: tuple[float, ...]
    waited_s: float
    tracing_s: float = 0.0


class Trainer:
    """A model, its optimizer and the steps that train and evaluate it under a strategy."""

    def __init__(
        self,
        task: Task,
        strategy: tf.distribute.Strategy,
        info: DatasetInfo,
        options: TrainOptions,
        config: Callable[[Any], Any] | None = None,
    ) -> None:
        """Makes model and optimizer under the strategy.

        Args:
          task: the task, with its model.
          strategy: any `tf.distribute` strategy.
          info: the dataset.
          options: options of the training.
          config: changes the task's InputConfig, such as its balance and augmentations.

        Raises:
          ValueError: the task, the strategy and the options do not fit together.
        """
        self.task, self.strategy, self.info, self.options = task, strategy, info, options
        inputs = task.inputs(info)
        self.config = config(inputs) if config else inputs
        if self.config.sample_weights:
            self.config = self.config.with_features("weight")
        self._check()
        keras.utils.set_random_seed(options.seed)
        with strategy.scope():
            self.model = self._build()
            self.optimizer = options.make_optimizer()
            self.optimizer.build(self.model.trainable_variables)
        self._steps: SynchronousSteps | ParameterServerSteps
        if is_parameter_server(strategy):
            self._steps = ParameterServerSteps(
                strategy, self.model, counter=self.optimizer.iterations, build=self._build
            )
        else:
            self._steps = SynchronousSteps(strategy, self.model)
        self._evaluator = Evaluator(
            task,
            self._steps.evaluation_strategy,
            info,
            model=self._steps.evaluation_model,
            config=self.config,
            global_batch_size=options.global_batch_size,
        )

    def _check(self) -> None:
        """Checks that the task, the strategy and the options fit together."""
        names = self.config.features
        if names is None or "image" not in names:
            raise ValueError(
                f"{self.task} asks for the features {names}: its inputs must name features, with "
                "'image'"
            )
        text = text_features(self.info, self.config)
        if text and isinstance(self.strategy, tf.distribute.TPUStrategy):
            raise ValueError(
                f"TPUs take no text: leave {', '.join(text)} out of {self.task}'s features"
            )
        batch_size, parts = self.options.global_batch_size, self.options.accumulate
        replicas = self.strategy.num_replicas_in_sync
        if batch_size % (replicas * parts):
            raise ValueError(
                f"global_batch_size {batch_size} can't be divided by {replicas} replicas that "
                f"accumulate {parts} parts: choose a multiple of {replicas * parts}"
            )

    def _build(self) -> keras.Model:
        # The policy is a setting of the process, which is the user's: it holds for `build` alone.
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
        """Returns the options that checkpoints of this run remember."""
        return RunIdentity.of(self.task, self.info, self.config, self.options)

    def check_weights(self) -> None:
        """Checks that all weights are finite, before a checkpoint; every worker must call it.

        Raises:
          NonFiniteError: a weight is not finite.
        """
        check_weights((*self.model.weights, *self.optimizer.variables), step=self.step)

    def any_worker(self, flag: bool) -> bool:
        """Tells whether the flag is set on any worker; every worker must call it."""
        return self._steps.any_worker(flag)

    def is_same(self, number: int) -> bool:
        """Tells whether a number is the same on every worker; every worker must call it."""
        return self._steps.is_same(number)

    def batches(self) -> Any:
        """Makes an iterator over training batches from the current step on."""
        start_step = self.step
        return self._steps.batches(
            lambda: make_distributed_dataset(
                self.strategy,
                self.info.data_dir,
                version=self.info.version,
                global_batch_size=self.options.global_batch_size,
                config=self.config,
                seed=self.options.seed,
                start_step=start_step,
            )
        )

    def train(self, batches: Any, steps: int) -> Progress:
        """Runs some training steps on batches of the iterator of `batches()`."""
        losses, waited_s, tracing_s = self._steps.run(self._train, batches, steps)
        return Progress(
            step=self.step, losses=tuple(losses), waited_s=waited_s, tracing_s=tracing_s
        )

    @tf.function
    def _train(self, batches: Any, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Runs steps.

        Returns:
          Their losses, float32 [steps], seconds of waiting for input, float64, and when the first
          step began, in seconds since 1970, float64.
        """
        began = tf.timestamp()
        losses = tf.TensorArray(tf.float32, steps)
        waited_s = tf.constant(0.0, tf.float64)
        for index in tf.range(steps):  # in the graph, so that the devices do not wait for the host
            before = tf.timestamp()
            with tf.control_dependencies([before]):
                batch = next(batches)
            # The wait ends when every replica of this worker has its part of the batch.
            arrived = [
                tensor
                for feature in batch.values()
                for tensor in self.strategy.experimental_local_results(feature)
            ]
            with tf.control_dependencies(arrived):
                waited_s += tf.timestamp() - before
            loss = self.strategy.run(self._train_replica, (batch,))
            losses = losses.write(index, self.strategy.reduce("SUM", loss, axis=None))
        return losses.stack(), waited_s, began

    def _train_replica(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """Updates the model by one batch of a replica; returns this replica's part of the loss."""
        if self.config.placement == "device":
            batch = augment(batch, self.config.augmentations, batch["seed"])
        variables = self.model.trainable_variables
        # With accumulate=2, 8 rows become parts of rows 0 to 3 and 4 to 7; gradients are added up.
        pieces = [tf.split(feature, self.options.accumulate) for feature in batch.values()]
        parts = [dict(zip(batch, part, strict=True)) for part in zip(*pieces, strict=True)]
        total = tf.constant(0.0)
        gradients: list[tf.Tensor] = []
        for part in parts:
            with tf.GradientTape() as tape:
                outputs = self.model(to_float32(part["image"]), training=True)
                losses = tf.cast(self.task.loss(outputs, part), tf.float32)
                if "weight" in part:
                    losses *= part["weight"]
                # Divided by the global batch: the optimizer adds up the gradients of all replicas.
                loss = tf.reduce_sum(losses) / self.options.global_batch_size
            part_gradients = tape.gradient(loss, variables)
            if gradients:
                pairs = zip(gradients, part_gradients, strict=True)
                gradients = [before + gradient for before, gradient in pairs]
            else:
                gradients = part_gradients
            total += loss
        self.optimizer.apply_gradients(zip(self._clipped(gradients), variables, strict=True))
        return total

    def _clipped(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """Clips this replica's part of the gradients by the norm of the sum over all replicas."""
        if self.options.clip_norm is None:
            return gradients
        # `tf.clip_by_global_norm` here would clip each part by the norm of that part.
        context = tf.distribute.get_replica_context()
        whole = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        norm = tf.linalg.global_norm(whole)
        scale = self.options.clip_norm / tf.maximum(norm, self.options.clip_norm)
        return [gradient * scale for gradient in gradients]

    def evaluate(self, split: str) -> Evaluation:
        """Computes loss and metrics over a split; every worker must call it."""
        self._steps.prepare_evaluation()
        return self._evaluator.evaluate(split)

    def predict(self, image: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """Computes the task's predictions from images; every worker must pass the same images."""
        return self._evaluator.predict(image)
