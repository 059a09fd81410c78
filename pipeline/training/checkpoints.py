"""Checkpoints of a training run: model, optimiser, step, and what they belong to."""

import os
import socket
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from pipeline.training.checkpoint_files import (
    DAMAGE,
    damage_of,
    damaged_file,
    listed_steps,
    mend_list,
    written_steps,
)
from pipeline.training.run_identity import Change, RunIdentity

_IDENTITY = "identity/.ATTRIBUTES/VARIABLE_VALUE"


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
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Opens a folder.

        Args:
          directory: the folder, on any file system that TensorFlow knows.
          model: Keras model.
          optimizer: Keras optimiser, built.
          identity: what a checkpoint belongs to, see `restore`.
          keep: how many of the newest are kept.
          is_chief: whether this worker's files count; every worker has to save, all the same.
          warn: called with a sentence for what is missing or damaged.
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
        self._warn = warn
        if is_chief and (problem := mend_list(directory)):
            warn(problem)
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

    def whole_step(self) -> int | None:
        """The step of the newest checkpoint; None where it is damaged, or there is none."""
        steps = written_steps(self._directory)
        if not steps or damaged_file(os.path.join(self._directory, f"step-{max(steps)}")):
            return None
        return max(steps)

    def restore(self, *, other_data: bool = False) -> bool:
        """Goes back to the newest whole checkpoint; returns whether there is one.

        Nothing is deleted: a checkpoint that is damaged stays until its step is saved again.

        Args:
          other_data: also one that was trained on other data or with other options of the input.

        Raises:
          ValueError: the checkpoint belongs to something else, or none of several is whole.
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
        identity = self._identity.numpy()
        try:
            self._checkpoint.restore(path, self._options).assert_existing_objects_matched()
        except (AssertionError, ValueError) as error:
            raise ValueError(
                f"{path} does not fit the model: variables have other shapes, or are others"
                f"{self._refused(path)}\n"
                "Give the task and its options as they were, or choose another run folder; "
                "--other-data can't help here."
            ) from error
        self._identity.assign(identity)
        self.changes = self._changes(path, other_data=other_data)

    def _refused(self, path: str) -> str:
        """Options of the stream that differ from those of a checkpoint, as far as it tells."""
        try:
            then = read_identity(path)
        except ValueError:
            return ""
        return _listing(self._options_now.stream_changes(then))

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
            raise ValueError(
                f"{path} was trained on other data or with other options{_listing(refused)}\n"
                "Give the same ones, choose another run folder, or say --other-data to go on."
            )
        return (*refused, *self._options_now.update_changes(then))


def _listing(changes: Iterable[Change]) -> str:
    lines = "".join(f"\n  {change}" for change in changes)
    return lines and f":{lines}"


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
