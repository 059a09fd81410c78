"""Keras' own training loop: on several workers, and resumed."""

import os
import socket
import warnings
from typing import Any

import keras
import tensorflow as tf

from pipeline.distribution.strategies import is_chief
from pipeline.training.checkpoint_files import (
    delete_partial,
    listed_steps,
    repair_list,
    written_steps,
)

_KEPT = 2  # checkpoints


class MultiWorkerModel(keras.Model):
    """A Keras model whose `fit`, `evaluate` and `predict` work under MultiWorkerMirroredStrategy.

    Those of `keras.Model` fail there (keras-team/keras#20585). Make it as any functional model, or
    name it as the first base class of a model of your own. Under other strategies nothing changes::

        with strategy.scope():
            model = MultiWorkerModel(inputs, outputs)

    Every worker must make the same calls. `predict` gives every worker all predictions.
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
        checkpoints = EpochCheckpoints(model, "runs/first")
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

    Attributes:
      step: steps of the restored optimizer; 0 if there is no checkpoint.
    """

    def __init__(self, model: keras.Model, directory: str | os.PathLike[str]) -> None:
        """Restores the newest checkpoint, if there is one.

        Args:
          model: compiled and built; under MultiWorkerMirroredStrategy, on every worker.
          directory: of the checkpoints, on a file system that all workers share.

        Raises:
          ValueError: the model is not compiled or not built, or the checkpoint is damaged or that
            of another model.
        """
        super().__init__()
        if not model.compiled or not model.built:
            raise ValueError(
                f"{model.name} is not compiled and built: call compile and, unless it has an Input "
                "layer, build before EpochCheckpoints"
            )
        with model.distribute_strategy.scope():
            model.optimizer.build(model.trainable_variables)
        weights = {id(variable) for variable in model.weights}
        self._checkpoint = tf.train.Checkpoint(
            model=model,
            # The seeds of dropout, which are not among Keras' weights.
            seeds=[variable.value for variable in model.variables if id(variable) not in weights],
            optimizer=model.optimizer,
        )
        directory = os.fspath(directory)
        self._is_chief = is_chief(model.distribute_strategy)
        if self._is_chief:
            delete_partial(directory)
            if problem := repair_list(directory):
                warnings.warn(problem, RuntimeWarning, stacklevel=2)
        self._restore(directory)
        self.step = int(model.optimizer.iterations.numpy())
        # All workers save, as reading some variables takes all of them. The chief's files count.
        worker = f"worker-{socket.gethostname()}-{os.getpid()}"
        self._own = directory if self._is_chief else os.path.join(directory, worker)
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, self._own, max_to_keep=_KEPT, checkpoint_name="step"
        )

    def _restore(self, directory: str) -> None:
        # By the files as well, as TensorFlow's list may lack the newest one, or be gone.
        steps = written_steps(directory) | (listed_steps(directory) or set())
        if not steps:
            return
        path = os.path.join(directory, f"step-{max(steps)}")
        try:
            self._checkpoint.restore(path).assert_existing_objects_matched()
        except (tf.errors.OpError, AssertionError, IndexError, ValueError) as error:
            raise ValueError(
                f"{path} can't be restored: bring back its files and the model it was made of, or "
                f"choose another directory ({error})"
            ) from error

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves; Keras calls it on every worker."""
        self._manager.save(checkpoint_number=int(self.model.optimizer.iterations.numpy()))
        if not self._is_chief:
            tf.io.gfile.rmtree(self._own)
