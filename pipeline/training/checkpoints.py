"""Checkpoints of a training run: model, optimizer, step, and the identity of the run."""

import os
import socket
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from pipeline.training.checkpoint_files import (
    DAMAGE,
    damage_of,
    damaged_file,
    delete_partial,
    listed_steps,
    repair_list,
    written_steps,
)
from pipeline.training.run_files import store_errors
from pipeline.training.run_identity import Change, RunIdentity

_IDENTITY = "identity/.ATTRIBUTES/VARIABLE_VALUE"


class Checkpoints:
    """The checkpoints in a folder, of which the newest are kept.

    TensorFlow writes the files of a checkpoint first and then, in one step, the list of
    checkpoints, so that a kill in between leaves the previous checkpoint. The step is the only
    state of the input pipeline.

    Attributes:
      newest_step: step of the checkpoint that was restored or saved last; None before that.
      changes: options that differ from those of the restored checkpoint, and count from now on.
    """

    def __init__(
        self,
        directory: str,
        *,
        model: Any,
        optimizer: Any,
        identity: RunIdentity,
        keep: int,
        is_chief: bool = True,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Opens a folder.

        Args:
          directory: the folder, on any file system that TensorFlow knows.
          model: Keras model.
          optimizer: Keras optimizer, built.
          identity: options of the run, see `restore`.
          keep: number of the newest checkpoints to keep.
          is_chief: the files of this worker count; the other workers must save, too.
          warn: called with a sentence for each missing or damaged checkpoint.
        """
        with tf.init_scope(), tf.device("CPU"):
            self._identity = tf.Variable(identity.to_json(), dtype=tf.string, trainable=False)
        self._options_now = identity
        self._directory = directory
        weights = {id(variable) for variable in model.weights}
        self._checkpoint = tf.train.Checkpoint(
            model=model,
            # The seeds of dropout, which are not among Keras' weights.
            seeds=[variable.value for variable in model.variables if id(variable) not in weights],
            optimizer=optimizer,
            identity=self._identity,
        )
        # The host is part of the name, as in containers every worker may be process 1.
        own = f"worker-{socket.gethostname()}-{os.getpid()}"
        self._own = directory if is_chief else os.path.join(directory, own)
        self.newest_step: int | None = None
        self.changes: tuple[Change, ...] = ()
        self._warn = warn
        if is_chief:
            delete_partial(directory)
            if problem := repair_list(directory):
                warn(problem)
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, self._own, max_to_keep=keep, checkpoint_name="step"
        )
        self._is_chief = is_chief
        # Files are written by this process, even if another machine holds the variables.
        self._options = tf.train.CheckpointOptions(experimental_io_device=self._identity.device)

    def save(self, step: int) -> None:
        """Writes a checkpoint; every worker must call it at the same step."""
        # Reading a variable may take all workers, so all save, and the chief's files stay.
        with store_errors(self._directory, missing=True):
            self._manager.save(checkpoint_number=step, options=self._options)
            if not self._is_chief:
                tf.io.gfile.rmtree(self._own)
        self.newest_step = step

    def whole_step(self) -> int | None:
        """Returns the step of the newest checkpoint; None if it is damaged or there is none."""
        steps = written_steps(self._directory)
        if not steps or damaged_file(os.path.join(self._directory, f"step-{max(steps)}")):
            return None
        return max(steps)

    def restore(self, *, other_data: bool = False) -> bool:
        """Restores the newest whole checkpoint; returns False if there is none.

        Nothing is deleted: a damaged checkpoint stays until its step is saved again.

        Args:
          other_data: accept a checkpoint that was trained on other data or with other options of
            the input.

        Raises:
          ValueError: the checkpoint belongs to another run, or all checkpoints are damaged.
        """
        written = written_steps(self._directory)
        steps = sorted({*written, *(listed_steps(self._directory) or ())}, reverse=True)
        problems: list[str] = []
        for step in steps:
            path = os.path.join(self._directory, f"step-{step}")
            if step not in written:
                problems.append(f"{path} is missing")
                continue
            try:
                with store_errors(self._directory):  # which are no damage
                    self._restore(path, other_data=other_data)
            except DAMAGE:
                problems.append(damage_of(path))
                continue
            for problem in problems:
                self._warn(
                    f"checkpoint {problem}: the run goes on from step {step}, the newest whole one"
                )
            self.newest_step = step
            return True
        if steps:
            raise ValueError(
                f"none of the checkpoints in {self._directory} can be read "
                f"(steps {', '.join(map(str, steps))}): bring one of them back, or choose another "
                "run folder to begin anew"
            )
        return False

    def _restore(self, path: str, *, other_data: bool) -> None:
        # Restoring overwrites all variables, the identity too, and the next checkpoint must carry
        # that of this run.
        identity = self._identity.numpy()
        try:
            self._checkpoint.restore(path, self._options).assert_existing_objects_matched()
        except (AssertionError, ValueError) as error:
            raise ValueError(
                f"{path} does not fit the model, which has other variables or other shapes"
                f"{self._refused(path)}\n"
                "Give the task and its options as they were, or choose another run folder; "
                "--other-data can't help here."
            ) from error
        self._identity.assign(identity)
        self.changes = self._changes(path, other_data=other_data)

    def _refused(self, path: str) -> str:
        """Lists options of the stream that differ from those of a checkpoint, if it has any."""
        try:
            then = read_identity(path)
        except ValueError:
            return ""
        return _listing(self._options_now.stream_changes(then))

    def _changes(self, path: str, *, other_data: bool) -> tuple[Change, ...]:
        """Finds options that differ from those of a checkpoint, and refuses those of the stream."""
        try:
            then = read_identity(path)
        except ValueError:
            if other_data:
                return ()
            raise
        refused = self._options_now.stream_changes(then)
        if refused and not other_data:
            raise ValueError(
                f"{path} was trained on other data or with other options{_listing(refused)}\n"
                "Give the same ones, choose another run folder, or say --other-data to go on."
            )
        return (*refused, *self._options_now.update_changes(then))


def _listing(changes: Iterable[Change]) -> str:
    lines = "".join(f"\n  {change}" for change in changes)
    return lines and f":{lines}"


def trained_version(directory: str) -> int | None:
    """Finds the version of the dataset that a folder's newest checkpoint was trained on.

    Returns:
      The version; None if no checkpoint can be read.
    """
    for step in sorted(written_steps(directory), reverse=True):
        try:
            return read_identity(os.path.join(directory, f"step-{step}")).dataset_version
        except (*DAMAGE, ValueError):
            continue  # `Checkpoints.restore` says what is wrong with it
    return None


def read_identity(path: str) -> RunIdentity:
    """Reads the identity of the run of a checkpoint.

    Raises:
      ValueError: the checkpoint has no identity, or one that can't be understood.
      tf.errors.OpError, IndexError: the checkpoint is damaged.
    """
    text = tf.train.load_checkpoint(path).get_tensor(_IDENTITY)
    try:
        return RunIdentity.from_json(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
