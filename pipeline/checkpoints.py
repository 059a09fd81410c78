"""Checkpoints of a training run: model, optimiser, step, and what they belong to."""

import json
import os
import socket
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

_IDENTITY = "identity/.ATTRIBUTES/VARIABLE_VALUE"


class Checkpoints:
    """The checkpoints in a folder, the newest of which are kept.

    TensorFlow writes a checkpoint's files first and then, in one step, the list of checkpoints, so
    that a kill in the middle leaves the one before. The input pipeline has no state but the step.
    """

    def __init__(
        self,
        directory: str,
        *,
        model: Any,
        optimizer: Any,
        identity: Mapping[str, Any],
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
            self._identity = tf.Variable(
                json.dumps(identity, sort_keys=True), dtype=tf.string, trainable=False
            )
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

    def restore(self, *, other_data: bool = False) -> bool:
        """Goes back to the newest checkpoint; returns whether there is one.

        Args:
          other_data: also one that was trained on other data or with other options of the input.

        Raises:
          ValueError: the checkpoint belongs to something else.
        """
        path = tf.train.latest_checkpoint(self._directory)
        if path is None:
            return False
        found = json.loads(tf.train.load_checkpoint(path).get_tensor(_IDENTITY))
        wanted = json.loads(self._identity.numpy())
        differing = sorted(
            name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)
        )
        if differing and not other_data:
            listing = "".join(
                f"\n  {name}: {found.get(name)} then, {wanted.get(name)} now" for name in differing
            )
            raise ValueError(
                f"{path} was trained on other data or with other options:{listing}\n"
                "Give the same ones, choose another run folder, or say --other-data to go on."
            )
        identity = self._identity.numpy()
        self._checkpoint.restore(path, self._options).assert_existing_objects_matched()
        self._identity.assign(identity)
        return True
