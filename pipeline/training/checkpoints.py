"""Checkpoints of a training run: model, optimiser, step, and what they belong to."""

import os
import re
import socket
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pipeline.training.run_identity import Change, RunIdentity

_IDENTITY = "identity/.ATTRIBUTES/VARIABLE_VALUE"
_INDEX = re.compile(r"step-(\d+)\.index")
# TensorFlow's errors for files that are cut short, changed or gone.
DAMAGE = (tf.errors.OpError, IndexError)


class Checkpoints:
    """The checkpoints in a folder, the newest of which are kept.

    TensorFlow writes a checkpoint's files first and then, in one step, the list of checkpoints, so
    that a kill in the middle leaves the one before. The input pipeline has no state but the step.

    Attributes:
      newest_step: step of the newest whole checkpoint, as far as one was restored or saved.
      changes: options that are not those of the restored checkpoint, and count from now on.
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
    ) -> None:
        """Opens a folder.

        Args:
          directory: the folder, on any file system that TensorFlow knows.
          model: Keras model.
          optimizer: Keras optimiser, built.
          identity: what a checkpoint belongs to, see `restore`.
          keep: how many of the newest are kept.
          is_chief: whether this worker's files count; every worker has to save, all the same.
        """
        with tf.init_scope(), tf.device("CPU"):
            self._identity = tf.Variable(identity.to_json(), dtype=tf.string, trainable=False)
        self._options_now = identity
        self._directory = directory
        weights = {id(each) for each in model.weights}
        self._checkpoint = tf.train.Checkpoint(
            model=model,
            # What dropout draws next, which Keras leaves out.
            seeds=[each.value for each in model.variables if id(each) not in weights],
            optimizer=optimizer,
            identity=self._identity,
        )
        # In containers, every worker may be process 1.
        own = f"worker-{socket.gethostname()}-{os.getpid()}"
        self._own = directory if is_chief else os.path.join(directory, own)
        self.newest_step: int | None = None
        self.changes: tuple[Change, ...] = ()
        if is_chief:
            _drop_unreadable_list(directory)
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, self._own, max_to_keep=keep, checkpoint_name="step"
        )
        self._is_chief = is_chief
        # Whichever device holds a variable, maybe another machine's, files are this process's.
        self._options = tf.train.CheckpointOptions(experimental_io_device=self._identity.device)

    def save(self, step: int) -> None:
        """Writes a checkpoint; every worker must call it at the same step."""
        self._manager.save(checkpoint_number=step, options=self._options)
        if not self._is_chief:
            tf.io.gfile.rmtree(self._own)
        self.newest_step = step

    def restore(
        self, *, other_data: bool = False, warn: Callable[[str], None] = lambda _: None
    ) -> bool:
        """Goes back to the newest whole checkpoint; returns whether there is one.

        Nothing is deleted: a checkpoint that is damaged stays until its step is saved again.

        Args:
          other_data: also one that was trained on other data or with other options of the input.
          warn: called with a sentence for each newer checkpoint that is missing or damaged.

        Raises:
          ValueError: the checkpoint belongs to something else, or none of several is whole.
        """
        written = written_steps(self._directory)
        steps = sorted({*written, *_listed_steps(self._directory)}, reverse=True)
        problems: list[str] = []
        for step in steps:
            path = os.path.join(self._directory, f"step-{step}")
            if step not in written:
                problems.append(f"{path} is missing")
                continue
            try:
                self._restore(path, other_data=other_data)
            except DAMAGE as error:
                problems.append(f"{path} can't be read ({error})")
                continue
            for problem in problems:
                warn(
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
        changes = self._changes(path, other_data=other_data)
        identity = self._identity.numpy()
        try:
            self._checkpoint.restore(path, self._options).assert_existing_objects_matched()
        except (AssertionError, ValueError) as error:
            raise ValueError(
                f"{path} does not fit the model: give the task's options as they were, or choose "
                f"another run folder ({error})"
            ) from error
        self._identity.assign(identity)
        self.changes = changes

    def _changes(self, path: str, *, other_data: bool) -> tuple[Change, ...]:
        """Options that differ from those of a checkpoint."""
        try:
            then = read_identity(path)
        except ValueError:
            if other_data:
                return ()
            raise
        refused = self._options_now.stream_changes(then)
        if refused and not other_data:
            listing = "".join(f"\n  {change}" for change in refused)
            raise ValueError(
                f"{path} was trained on other data or with other options:{listing}\n"
                "Give the same ones, choose another run folder, or say --other-data to go on."
            )
        return (*refused, *self._options_now.update_changes(then))


def read_identity(path: str) -> RunIdentity:
    """The identity of the run that a checkpoint belongs to.

    Raises:
      ValueError: it has none that can be understood.
      tf.errors.OpError, IndexError: the checkpoint is damaged.
    """
    text = tf.train.load_checkpoint(path).get_tensor(_IDENTITY)
    try:
        return RunIdentity.from_json(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def written_steps(directory: str) -> set[int]:
    """Steps whose index file is there, which TensorFlow writes after the data."""
    if not tf.io.gfile.isdir(directory):
        return set()
    names = map(_INDEX.fullmatch, tf.io.gfile.listdir(directory))
    return {int(name[1]) for name in names if name}


def _listed_steps(directory: str) -> set[int]:
    """Steps in TensorFlow's list of checkpoints; none where it can't be read."""
    try:
        state = tf.train.get_checkpoint_state(directory)
    except ValueError:
        return set()
    paths = state.all_model_checkpoint_paths if state else ()
    return {int(path.rpartition("-")[2]) for path in paths}


def _drop_unreadable_list(directory: str) -> None:
    """Deletes a list that TensorFlow refuses to open; `restore` does without one."""
    try:
        tf.train.get_checkpoint_state(directory)
    except ValueError:
        tf.io.gfile.remove(os.path.join(directory, "checkpoint"))
