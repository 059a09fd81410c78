"""The files of a folder of checkpoints: which steps there are, what is listed, what is damaged."""

import os
import re
from pathlib import Path

import tensorflow as tf

# TensorFlow's errors for files that are cut short, changed or gone.
DAMAGE = (tf.errors.OpError, IndexError)
_INDEX = re.compile(r"step-(\d+)\.index")
_LISTED = re.compile(r"(?:.*/)?step-(\d+)", re.DOTALL)
_DATA = ".data-00000-of-00001"  # a single file, as one device writes all variables


def written_steps(directory: str) -> set[int]:
    """Steps whose index file is there, which TensorFlow writes after the data."""
    if not tf.io.gfile.isdir(directory):
        return set()
    names = map(_INDEX.fullmatch, tf.io.gfile.listdir(directory))
    return {int(name[1]) for name in names if name}


def listed_steps(directory: str) -> set[int] | None:
    """Steps in TensorFlow's list of checkpoints; None where there is none that can be read."""
    try:
        state = tf.train.get_checkpoint_state(directory)
    except ValueError:
        return None
    steps = [_LISTED.fullmatch(each) for each in state.all_model_checkpoint_paths] if state else []
    return {int(each[1]) for each in steps if each} if steps and all(steps) else None


def mend_list(directory: str) -> str | None:
    """Makes a list that is missing or can't be read anew, from the files.

    Returns:
      A sentence about a list that could not be read, None where there was none or a good one.
    """
    if listed_steps(directory) is not None:
        return None
    path = os.path.join(directory, "checkpoint")
    was_there = tf.io.gfile.exists(path)
    if was_there:
        tf.io.gfile.remove(path)
    names = [f"step-{step}" for step in sorted(written_steps(directory))]
    if names:
        # TensorFlow would keep those without a time for ever.
        times = [tf.io.gfile.stat(os.path.join(directory, f"{each}.index")) for each in names]
        tf.compat.v1.train.update_checkpoint_state(
            directory,
            names[-1],
            names,
            all_model_checkpoint_timestamps=[each.mtime_nsec / 1e9 for each in times],
        )
    return f"{path} can't be read: it is made anew from the files beside it" if was_there else None


def damaged_file(path: str) -> str | None:
    """The file of a checkpoint that is damaged or missing; None where all of it can be read."""
    try:
        reader = tf.train.load_checkpoint(path)
    except DAMAGE:
        return f"{path}.index"
    try:
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except DAMAGE:
        return path + _DATA
    return None


def damage_of(path: str) -> str:
    """A sentence's part about a checkpoint whose restoring failed."""
    file = damaged_file(path)
    if file is None:
        return f"{path} could not be read at the first attempt"
    return f"{path} is damaged ({Path(file).name} was changed, cut short or removed)"
