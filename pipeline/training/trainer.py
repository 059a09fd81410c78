"""Training and evaluation steps, the same for every strategy."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy.typing as npt
import tensorflow as tf

from pipeline.augmentation.chain import augment_views, views_as_examples
from pipeline.augmentation.pixels import to_float32
from pipeline.dataset import make_distributed_dataset
from pipeline.distribution.image_sizes import step_by_size, switch_by_size, with_size
from pipeline.distribution.parameter_server import is_parameter_server, worker_count
from pipeline.evaluation.evaluator import Evaluation, Evaluator
from pipeline.input.features import text_features
from pipeline.input.services import check_services
from pipeline.records.bucket_table import sizes_of
from pipeline.records.info import DatasetInfo
from pipeline.tasks.base import Task, TaskError, check_inputs
from pipeline.tasks.results import losses_of
from pipeline.training.backup_workers import BackupWorkerSteps, check_backup_workers
from pipeline.training.gradients import Gradients, ModelCall, add_gradients, clip_gradients
from pipeline.training.keras_settings import check_keras, dtype_policy
from pipeline.training.non_finite import check_weights
from pipeline.training.options import TrainOptions
from pipeline.training.parameter_server import AsynchronousSteps
from pipeline.training.progress import Progress
from pipeline.training.run_identity import RunIdentity
from pipeline.training.synchronous import SynchronousSteps
from pipeline.training.trained_variables import choose_variables, train_only


class Trainer:
    """A model, its optimizer and the steps that train and evaluate it under a strategy."""

    def __init__(
        self,
        task: Task,
        strategy: tf.distribute.Strategy,
        info: DatasetInfo,
        options: TrainOptions,
        config: Callable[[Any], Any] | None = None,
        *,
        services: Sequence[str] = (),
    ) -> None:
        """Makes model and optimizer under the strategy.

        Args:
          task: the task, with its model.
          strategy: any `tf.distribute` strategy.
          info: the dataset.
          options: options of the training.
          config: changes the task's InputConfig, such as its balance and augmentations.
          services: addresses of data services that make the training batches, see
            `make_distributed_dataset`; empty to make them here.

        Raises:
          ValueError: the task, the strategy and the options do not fit together.
        """
        check_keras()
        self.task, self.strategy, self.info, self.options = task, strategy, info, options
        self._services = services
        inputs = task.inputs(info)
        self.config = config(inputs) if config else inputs
        if self.config.sample_weights:
            self.config = self.config.with_features("weight")
        # Chosen once, and the sizes are what a checkpoint remembers.
        self._sizes = sizes_of(info, self.config) if self.config.buckets is not None else ()
        self.config = dataclasses.replace(self.config, buckets=self._sizes or None)
        self._check()
        keras.utils.set_random_seed(options.seed)
        with strategy.scope():
            self.model = self._build()
            self._check_sizes()
            self.optimizer = options.make_optimizer()
            self.optimizer.build(self.model.trainable_variables)
        self._call = ModelCall(self.model)
        self._steps = self._make_steps()
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
        check_inputs(self.task, self.config)
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
        if self._services:
            check_services(self.strategy, self._services)
        if self.options.backup_workers is not None:
            self._check_backup_workers(self.options.backup_workers)

    def _check_backup_workers(self, backups: int) -> None:
        if not is_parameter_server(self.strategy):
            raise ValueError(
                f"backup_workers {backups} needs parameter servers: choose strategy "
                "'parameter_server', or leave it out"
            )
        check_backup_workers(
            self.options,
            workers=worker_count(self.strategy),
            devices=self.strategy.num_replicas_in_sync,
        )

    def _check_sizes(self) -> None:
        """Checks that the model takes images of the size of each bucket."""
        model = tf.function(self.model, autograph=False)
        for height, width in self._sizes:
            try:
                # Traced, and not run: Keras does not check the shapes of symbolic images.
                image = tf.TensorSpec((1, height, width, self.config.channels))
                model.get_concrete_function(image, training=False)
            except ValueError as error:
                raise ValueError(
                    f"the model of {self.task} can't take images of {height} × {width} pixels, one "
                    "of the sizes of buckets: leave buckets out, or choose sizes and a task that "
                    "fit each other, such as TextDetector with multiples of 16 pixels, or "
                    "LayoutClassifier of depth 'deep' with any size"
                ) from error

    def _make_steps(self) -> SynchronousSteps | AsynchronousSteps | BackupWorkerSteps:
        counter = self.optimizer.iterations
        if not is_parameter_server(self.strategy):
            return SynchronousSteps(self.strategy, self.model, train=self._train, counter=counter)
        if self.options.backup_workers is None:
            return AsynchronousSteps(
                self.strategy, self.model, train=self._train, counter=counter, build=self._build
            )
        return BackupWorkerSteps(
            self.strategy,
            self.model,
            counter=counter,
            build=self._build,
            backups=self.options.backup_workers,
            next_batch=self._next_batch,
            gradients=self._replica_gradients_by_size,
            update=self._update_replica,
        )

    def _build(self) -> keras.Model:
        with dtype_policy("mixed_bfloat16" if self.options.mixed_precision else "float32"):
            model = self.task.build(self.info)
        if not model.built:
            raise TaskError(self._unbuilt())
        # Before the optimizer is built, which then knows of nothing else, weight decay included.
        if names := self.options.train_only:
            train_only(
                model, choose_variables(self.task, model, self.info, names, option="train_only")
            )
        return model

    def _unbuilt(self) -> str:
        (height, width), *_ = self._sizes or ((self.config.height, self.config.width),)
        return (
            f"the model of {self.task} makes variables when it is called, and the trainer needs "
            f"them before: call model(keras.Input(({height}, {width}, {self.config.channels}))) in "
            "build"
        )

    def check_task(self, split: str) -> None:
        """Makes the graph of an evaluation, so that errors of a task show before the first step.

        Every worker must call it. It changes nothing, and the first evaluation uses the graph.

        Args:
          split: the split to evaluate on.

        Raises:
          TaskError: a method of the task returns something of another shape than it should, or its
            model makes variables when it is called.
        """
        variables = len(self.model.variables)
        self._evaluator.trace(split)
        if len(self.model.variables) > variables:
            raise TaskError(self._unbuilt())

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
        parts = self._steps.batches_per_step
        start = self.step * parts
        config = dataclasses.replace(self.config, balance=self.config.balance.in_parts(parts))
        return self._steps.batches(
            lambda: make_distributed_dataset(
                self.strategy,
                self.info.data_dir,
                version=self.info.version,
                global_batch_size=self.options.global_batch_size // parts,
                config=config,
                seed=self.options.seed,
                start_step=start,
                services=self._services,
            )
        )

    def train(self, batches: Any, steps: int) -> Progress:
        """Runs some training steps on batches of the iterator of `batches()`."""
        return self._steps.run(batches, steps)

    @tf.function(autograph=False)
    def _train(self, batches: Any, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Runs steps.

        Returns:
          Their losses, float32 [steps], seconds of waiting for input, float64, and when the first
          step began, in seconds since 1970, float64.
        """
        began = tf.timestamp()

        def train_step(
            index: tf.Tensor, losses: tf.TensorArray, waited_s: tf.Tensor
        ) -> tuple[tf.Tensor, tf.TensorArray, tf.Tensor]:
            batch, seconds = self._next_batch(batches)
            loss = step_by_size(self.strategy, batch, self._sizes, self._train_step)
            return index + 1, losses.write(index, loss), waited_s + seconds

        # A loop of the graph, so that the devices do not wait for the host.
        _, losses, waited_s = tf.while_loop(
            lambda index, *_: index < steps,
            train_step,
            (tf.constant(0), tf.TensorArray(tf.float32, steps), tf.constant(0.0, tf.float64)),
            maximum_iterations=steps,
        )
        return losses.stack(), waited_s, began

    def _next_batch(self, batches: Any) -> tuple[dict[str, Any], tf.Tensor]:
        """Takes a batch, and returns the seconds that it waited for it, float64 []."""
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
            return batch, tf.timestamp() - before

    def _train_step(self, batch: dict[str, Any]) -> tf.Tensor:
        """Updates the model by a global batch, and returns its loss, with layers', float32 []."""
        loss = self.strategy.run(self._train_replica, (batch,))
        return self.strategy.reduce("SUM", loss, axis=None)

    def _train_replica(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """Updates the model by one batch of a replica; returns this replica's part of the loss."""
        loss, gradients = self._replica_gradients(batch)
        self._update_replica(gradients)
        return loss

    def _replica_gradients(self, batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, Gradients]:
        """Computes a replica's parts of the loss and of the gradients of a global batch."""
        if self.config.placement == "device":
            config = self.config
            batch = augment_views(batch, config.augmentations, batch["seed"], config.views)
        variables = self.model.trainable_variables
        # With accumulate=2, 8 rows become parts of rows 0 to 3 and 4 to 7; gradients are added up.
        pieces = [tf.split(feature, self.options.accumulate) for feature in batch.values()]
        parts = [dict(zip(batch, part, strict=True)) for part in zip(*pieces, strict=True)]
        calls = len(parts) * self.strategy.num_replicas_in_sync * self._steps.batches_per_step
        total = tf.constant(0.0)
        gradients: Gradients = [None] * len(variables)
        for part in parts:
            with tf.GradientTape() as tape:
                outputs, of_layers = self._call(views_as_examples(to_float32(part["image"])))
                losses = losses_of(self.task, outputs, part)
                if "weight" in part:
                    losses *= part["weight"]
                # Divided by the global batch: the optimizer adds up the gradients of all replicas.
                # A layer's loss is one of its weights, or a mean over the examples of a call.
                loss = tf.reduce_sum(losses) / self.options.global_batch_size + of_layers / calls
            gradients = add_gradients(gradients, tape.gradient(loss, variables))
            total += loss
        return total, gradients

    def _replica_gradients_by_size(
        self, batch: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, Gradients]:
        """Computes gradients where each replica may have images of another size."""
        if not self._sizes:
            return self._replica_gradients(batch)
        return switch_by_size(
            batch["image"],
            self._sizes,
            lambda size: self._replica_gradients(with_size(batch, size)),
        )

    def _update_replica(self, gradients: Gradients) -> None:
        """Updates the model by this replica's part of the gradients, and those of the others."""
        if self.options.clip_norm is not None:
            gradients = clip_gradients(gradients, self.options.clip_norm)
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))

    def evaluate(self, split: str) -> Evaluation:
        """Computes loss and metrics over a split; every worker must call it."""
        self._steps.prepare_evaluation()
        return self._evaluator.evaluate(split)

    def predict(self, image: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """Computes the task's predictions from images; every worker must pass the same images."""
        return self._evaluator.predict(image)
