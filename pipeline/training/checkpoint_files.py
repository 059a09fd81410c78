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
    names = map(_INDEX.fullmatch, _names(directory, "step-*.index"))
    return {int(name[1]) for name in names if name}


def _names(directory: str, pattern: str) -> list[str]:
    """Lists files and folders; a local folder is listed as a whole, whatever the pattern."""
    if is_remote(directory):
        # At an error of S3, `isdir` and `listdir` would say that there is no folder.
        with store_errors(directory.rpartition("/")[0], missing=True):  # of the bucket
            paths = tf.io.gfile.glob(os.path.join(directory, pattern))
        return [Path(path).name for path in paths]
    return tf.io.gfile.listdir(directory) if tf.io.gfile.isdir(directory) else []


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
    """Brings TensorFlow's list of checkpoints in line with the files.

    A list that is missing or can't be read is made again. A checkpoint that was written just
    before a kill is not in the list yet: TensorFlow would never delete it, so it is added.

    Returns:
      A sentence about a list that could not be read; None if it was missing or can be read.
    """
    listed = listed_steps(directory)
    written = written_steps(directory)
    path = os.path.join(directory, "checkpoint")
    unreadable = listed is None and tf.io.gfile.exists(path)
    if unreadable:
        tf.io.gfile.remove(path)
    if written - (listed or set()):
        # A file that the list names and that is gone stays in the list, for `restore` to report.
        steps = sorted(written | (listed or set()))
        paths = [os.path.join(directory, f"step-{step}") for step in steps]
        tf.compat.v1.train.update_checkpoint_state(
            directory,
            paths[-1],
            paths,
            # TensorFlow would never delete checkpoints without a time.
            all_model_checkpoint_timestamps=[
                _written_at(directory, step) if step in written else 0.0 for step in steps
            ],
        )
    if unreadable:
        return f"{path} can't be read: it is made again from the files beside it"
    return None


def _written_at(directory: str, step: int) -> float:
    stat = tf.io.gfile.stat(os.path.join(directory, f"step-{step}.index"))
    return stat.mtime_nsec / 1e9


def delete_partial(directory: str) -> None:
    """Deletes what a kill has left of a checkpoint that was being written.

    TensorFlow writes `step-20_temp/part-00000-of-00001.index` (in S3 it is
    `step-20.part-00000-of-00001.index`), and moves it to `step-20.index`.
    """
    for name in _names(directory, "step-*"):
        path = os.path.join(directory, name)
        if re.fullmatch(r"step-\d+_temp", name):
            tf.io.gfile.rmtree(path)
        elif re.fullmatch(r"step-\d+\.part-.*", name):
            tf.io.gfile.remove(path)


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
