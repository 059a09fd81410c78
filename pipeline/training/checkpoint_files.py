"""The files in a folder of checkpoints: steps, TensorFlow's list of them, and damage."""

import os
import re
from pathlib import Path

import tensorflow as tf

from pipeline.records.files import is_remote
from pipeline.training.run_files import store_errors

# TensorFlow's errors for files that are cut short, changed or gone.
DAMAGE = (tf.errors.OpError, IndexError)
_INDEX = re.compile(r"step-(\d+)\.index")
_LISTED = re.compile(r"(?:.*/)?step-(\d+)", re.DOTALL)
_DATA = ".data-00000-of-00001"  # a single file, as one device writes all variables


def written_steps(directory: str) -> set[int]:
    """Finds steps that have an index file, which TensorFlow writes after the data."""
    if is_remote(directory):
        # At an error of S3, `isdir` and `listdir` would say that there is no folder.
        with store_errors(directory.rpartition("/")[0], missing=True):  # of the bucket
            paths = tf.io.gfile.glob(os.path.join(directory, "step-*.index"))
        found = [Path(path).name for path in paths]
    else:
        found = tf.io.gfile.listdir(directory) if tf.io.gfile.isdir(directory) else []
    names = map(_INDEX.fullmatch, found)
    return {int(name[1]) for name in names if name}


def listed_steps(directory: str) -> set[int] | None:
    """Reads TensorFlow's list of checkpoints; returns None if there is none that can be read."""
    try:
        state = tf.train.get_checkpoint_state(directory)
    except ValueError:
        return None
    if state is None:
        return None
    # The list may name the folder as it was called then, so only the end of a path counts. A list
    # of other names is taken to be damaged.
    names = [_LISTED.fullmatch(path) for path in state.all_model_checkpoint_paths]
    return {int(name[1]) for name in names if name} if names and all(names) else None


def repair_list(directory: str) -> str | None:
    """Makes the list of checkpoints from the files if it is missing or can't be read.

    Returns:
      A sentence about a list that could not be read; None if it was missing or can be read.
    """
    if listed_steps(directory) is not None:
        return None
    path = os.path.join(directory, "checkpoint")
    was_there = tf.io.gfile.exists(path)
    if was_there:
        tf.io.gfile.remove(path)
    names = [f"step-{step}" for step in sorted(written_steps(directory))]
    if names:
        # TensorFlow would never delete checkpoints without a time.
        times = [tf.io.gfile.stat(os.path.join(directory, f"{name}.index")) for name in names]
        tf.compat.v1.train.update_checkpoint_state(
            directory,
            names[-1],
            names,
            all_model_checkpoint_timestamps=[time.mtime_nsec / 1e9 for time in times],
        )
    return f"{path} can't be read: it is made again from the files beside it" if was_there else None


def damaged_file(path: str) -> str | None:
    """Finds a file of a checkpoint that is damaged or missing; None if all can be read."""
    try:
        with store_errors(path):
            reader = tf.train.load_checkpoint(path)
    except DAMAGE:
        return f"{path}.index"
    # Only the index has been read so far. Reading a tensor compares its bytes with their checksum.
    try:
        for name in reader.get_variable_to_shape_map():
            with store_errors(path):
                reader.get_tensor(name)
    except DAMAGE:
        return path + _DATA
    return None


def damage_of(path: str) -> str:
    """Describes, as part of a sentence, why a checkpoint could not be restored."""
    file = damaged_file(path)
    if file is None:
        return f"{path} could not be read at the first attempt"
    return f"{path} is damaged ({Path(file).name} was changed, cut short or removed)"
