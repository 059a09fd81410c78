"""Keras' own training loop: on several workers, and resumed."""

import dataclasses
import json
import os
import socket
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from pipeline.distribution.strategies import is_chief
from pipeline.records.info import DatasetInfo
from pipeline.training.checkpoint_files import (
    delete_partial,
    listed_steps,
    repair_list,
    written_steps,
)
from pipeline.training.checkpoints import read_identity
from pipeline.training.keras_settings import check_keras_model
from pipeline.training.run_identity import RunIdentity, Value, dataset_options

_KEPT = 2  # checkpoints
_STEP = "step/.ATTRIBUTES/VARIABLE_VALUE"


@keras.saving.register_keras_serializable(package="tillroll")
class MultiWorkerModel(keras.Model):
    """A Keras model whose `fit`, `evaluate` and `predict` work under MultiWorkerMirroredStrategy.

    Those of `keras.Model` fail there (keras-team/keras#20585). Make it as any functional model, or
    name it as the first base class of a model of your own. Under other strategies nothing changes::

        with strategy.scope():
            model = MultiWorkerModel(inputs, outputs)

    Every worker must make the same calls. `predict` gives every worker all predictions. To load a
    saved model with `keras.models.load_model`, import this class first.
    """

    def train_step(self, data: Any) -> Any:
        """Takes a step of `fit` on a replica."""
        return self._averageable(super().train_step(data))

    def test_step(self, data: Any) -> Any:
        """Takes a step of `evaluate` on a replica."""
        return self._averageable(super().test_step(data))

    def _averageable(self, metrics: Any) -> Any:
        """Adds an axis to metrics, along which Keras averages the metrics of several workers."""
        if not self._is_multi_worker():
            return metrics
        return tf.nest.map_structure(lambda metric: tf.expand_dims(metric, 0), metrics)

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Builds metrics and loss for the shapes of one replica's batch.

        Keras takes the mean of the replicas' batches, which workers can't make.
        """
        if iterator is not None and self._is_multi_worker():
            _, _, batches = next(iter(iterator))
            local = self.distribute_strategy.experimental_local_results
            data_batch = tf.nest.map_structure(lambda each: local(each)[0], next(batches))
            iterator = None
        super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)

    def _is_multi_worker(self) -> bool:
        return isinstance(self.distribute_strategy, tf.distribute.MultiWorkerMirroredStrategy)


class EpochCheckpoints(keras.callbacks.Callback):
    """Saves model and optimizer after each epoch of `fit`, and restores the newest ones.

    Make it before the dataset, which begins at its step::

        model.compile(...)
        checkpoints = EpochCheckpoints(model, "runs/first", info=load_info("data/receipts"))
        dataset = make_distributed_dataset(strategy, ..., start_step=checkpoints.step)
        steps = dataset.steps_per_epoch
        model.fit(
            dataset,
            steps_per_epoch=steps,
            initial_epoch=checkpoints.step // steps,
            epochs=10,
            callbacks=[checkpoints],
        )

    A run that is killed repeats the steps of its last epoch, and ends with the same weights as a
    run that is not. `keras.callbacks.BackupAndRestore` can't be used instead: it restores within
    `fit`, after the dataset was made, and does not give the step. Other callbacks start anew.

    Another dataset and another number of steps per epoch are refused, as they change the meaning of
    a step. Other options of the optimizer count from the restored step on, the learning rate
    included, and a warning names them.
    """

    def __init__(
        self,
        model: keras.Model,
        directory: str | os.PathLike[str],
        *,
        info: DatasetInfo | None = None,
    ) -> None:
        """Restores the newest checkpoint, if there is one.

        Args:
          model: compiled and built; under MultiWorkerMirroredStrategy, on every worker.
          directory: of the checkpoints, on a file system that all workers share.
          info: the dataset of the training; None to continue on any.

        Raises:
          ValueError: the model is not compiled or not built, or the checkpoint is damaged or of
            another model or dataset.
        """
        super().__init__()
        check_keras_model(model)
        if not model.compiled or not model.built:
            raise ValueError(
                f"{model.name} is not compiled and built: call compile and, unless it has an Input "
                "layer, build before EpochCheckpoints"
            )
        with model.distribute_strategy.scope():
            model.optimizer.build(model.trainable_variables)
        self.set_model(model)
        self._current = RunIdentity(
            stream=dataset_options(info) if info else {},
            updates=dict(_options(model.optimizer.get_config(), "optimizer")),
            dataset_version=info.version if info else None,
        )
        self._earlier: RunIdentity | None = None
        with tf.init_scope(), tf.device("CPU"):
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._identity = tf.Variable("", dtype=tf.string, trainable=False)
        weights = {id(variable) for variable in model.weights}
        self._checkpoint = tf.train.Checkpoint(
            model=model,
            # The seeds of dropout, which are not among Keras' weights.
            seeds=[variable.value for variable in model.variables if id(variable) not in weights],
            optimizer=model.optimizer,
            step=self._step,
            identity=self._identity,
        )
        self._epoch_batches = 0
        directory = os.fspath(directory)
        self._is_chief = is_chief(model.distribute_strategy)
        if self._is_chief:
            delete_partial(directory)
            if problem := repair_list(directory):
                warnings.warn(problem, RuntimeWarning, stacklevel=2)
        # By the files as well, as TensorFlow's list may lack the newest one, or be gone.
        if steps := written_steps(directory) | (listed_steps(directory) or set()):
            self._restore(os.path.join(directory, f"step-{max(steps)}"))
        # All workers save, as reading some variables takes all of them. The chief's files count.
        worker = f"worker-{socket.gethostname()}-{os.getpid()}"
        self._own = directory if self._is_chief else os.path.join(directory, worker)
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, self._own, max_to_keep=_KEPT, checkpoint_name="step"
        )

    @property
    def step(self) -> int:
        """Batches that the model was trained on, up to its last whole epoch.

        The optimizer's `iterations` are fewer with gradient accumulation, and where a loss scale
        skips steps.
        """
        return int(self._step.numpy())

    def _restore(self, path: str) -> None:
        optimizer = self.model.optimizer
        learning_rate = optimizer.learning_rate
        # A number is restored, and a schedule is not.
        is_number = isinstance(learning_rate, keras.Variable)
        program_rate = float(learning_rate.numpy()) if is_number else None
        checkpoint = self._checkpoint
        try:
            is_counted = tf.train.load_checkpoint(path).has_tensor(_STEP)
            if is_counted:
                self._earlier = read_identity(path)
        except (tf.errors.OpError, IndexError) as error:
            raise _damage(path, error) from error
        if self._earlier:
            self._check_dataset(path, self._earlier)
        else:
            checkpoint = self._without_step(path)
        try:
            checkpoint.restore(path).assert_existing_objects_matched()
        except (tf.errors.OpError, AssertionError, IndexError, ValueError) as error:
            raise _damage(path, error) from error
        if self._earlier is None:
            self._step.assign(int(optimizer.iterations.numpy()))
        elif changes := self._current.update_changes(self._earlier):
            if program_rate is not None and any(
                "learning_rate" in change.name for change in changes
            ):
                optimizer.learning_rate = program_rate
            listing = "".join(f"\n  {change}" for change in changes)
            warnings.warn(
                f"options differ from those of {path}, and count from step {self.step} on:"
                f"{listing}",
                RuntimeWarning,
                stacklevel=3,
            )

    def _without_step(self, path: str) -> tf.train.Checkpoint:
        """Returns what a checkpoint of tillroll 0.2 holds, whose step is the optimizer's.

        Raises:
          ValueError: the optimizer does not count every batch.
        """
        optimizer = self.model.optimizer
        if (
            isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
            or optimizer.gradient_accumulation_steps
        ):
            raise ValueError(
                f"{path} does not tell how many batches its model has seen, as it was written by "
                "tillroll 0.2 with an optimizer that does not count all of them: choose another "
                "directory, and load the weights by model.load_weights"
            )
        parts = ("model", "seeds", "optimizer")
        return tf.train.Checkpoint(**{name: getattr(self._checkpoint, name) for name in parts})

    def _check_dataset(self, path: str, earlier: RunIdentity) -> None:
        if not (self._current.stream and "dataset" in earlier.stream):
            return
        names = self._current.stream.keys()
        if all(self._current.stream[name] == earlier.stream.get(name) for name in names):
            return
        version, current = earlier.dataset_version, self._current.dataset_version
        repair = (
            "give that dataset"
            if version == current
            else f"pass version={version} to load_info and to the datasets"
        )
        raise ValueError(
            f"{path} was trained on version {version} of a dataset, and info is of another one, or "
            f"of other records (version {current}): {repair}, or choose another directory"
        )

    def on_train_begin(self, logs: Any = None) -> None:
        """Checks that epochs are as long as those of the checkpoint.

        Raises:
          ValueError: they are not.
        """
        steps = self.params["steps"]
        earlier = self._earlier.stream.get("steps_per_epoch") if self._earlier else None
        if None not in (steps, earlier) and steps != earlier:
            raise ValueError(
                f"steps_per_epoch is {steps}, and was {earlier} before step {self.step}, from "
                "which this run continues: give the same batch size and version of the dataset, or "
                "choose another directory"
            )
        stream = {**self._current.stream, "steps_per_epoch": steps}
        self._current = dataclasses.replace(self._current, stream=stream)
        self._identity.assign(self._current.to_json())

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begins to count the batches of an epoch."""
        self._epoch_batches = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts batches; with `steps_per_execution`, `batch` is the last of several."""
        self._epoch_batches = batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves; Keras calls it on every worker."""
        self._step.assign_add(self._epoch_batches)
        self._manager.save(checkpoint_number=self.step)
        if not self._is_chief:
            tf.io.gfile.rmtree(self._own)


def _damage(path: str, error: Exception) -> ValueError:
    return ValueError(
        f"{path} can't be restored: bring back its files and the model it was made of, or choose "
        f"another directory ({error})"
    )


def _options(value: Any, name: str) -> Iterator[tuple[str, Value]]:
    """Yields the options of an optimizer's config by dotted names, schedules and all."""
    if isinstance(value, dict):
        for key, part in value.items():
            # Keras numbers the names of optimizers, such as "adam_1".
            if key != "name":
                yield from _options(part, f"{name}.{key}")
    elif isinstance(value, float):
        yield name, float(f"{value:.7g}")  # of a float32: 0.1, not 0.10000000149011612
    elif value is None or isinstance(value, str | int):
        yield name, value
    else:
        yield name, json.dumps(value, default=str)
