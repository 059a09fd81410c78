"""Loads models from the folders of training runs."""

import os
from typing import Any, Literal, NamedTuple

import tensorflow as tf

from pipeline.records.info import DatasetInfo, load_info
from pipeline.tasks.base import Task, load_task
from pipeline.training.checkpoint_files import DAMAGE, damage_of, damaged_file, written_steps
from pipeline.training.checkpoints import read_identity, trained_version
from pipeline.training.keras_settings import check_keras, dtype_policy
from pipeline.training.options import TrainOptions
from pipeline.training.run_directory import BEST, CHECKPOINTS, OPTIONS, RunFolder
from pipeline.training.run_identity import RunIdentity

FOLDERS = {"best": BEST, "newest": CHECKPOINTS}


class TrainedModel(NamedTuple):
    """A Keras model with the weights of a step, its task and its dataset."""

    task: Task
    model: Any
    info: DatasetInfo
    step: int


def load_trained_model(
    run_dir: str,
    *,
    checkpoint: Literal["best", "newest"] = "best",
    data_dir: str | None = None,
) -> TrainedModel:
    """Loads a model from the folder of a run of `pipeline.train`.

    Args:
      run_dir: the run folder.
      checkpoint: "best" for the one with the lowest validation loss, or "newest".
      data_dir: the dataset directory where it is now; None for where it was.

    Raises:
      ValueError: Keras' settings do not fit, there is no such checkpoint, or it was trained on
        other data or for another task than options.json tells.
      FileNotFoundError: there is no run, or no dataset.
    """
    check_keras()
    options = RunFolder(run_dir, is_chief=False).read_options()
    if not options:
        raise FileNotFoundError(
            f"{run_dir} is not the folder of a training run (no file {OPTIONS}): check the path"
        )
    directory = os.path.join(run_dir, FOLDERS[checkpoint])
    steps = written_steps(directory)
    if not steps:
        other = "newest" if checkpoint == "best" else "best"
        raise ValueError(
            f"{directory} holds no checkpoint: train longer, or choose the checkpoint {other!r}"
        )
    try:
        info = load_info(data_dir or options["data_dir"], version=trained_version(directory))
    except FileNotFoundError as error:
        if data_dir:
            raise
        raise FileNotFoundError(
            f"{run_dir} was trained on {options['data_dir']}, where there is no finished dataset "
            "now: name its place by --data-dir of pipeline.export (--init-from takes the exported "
            "model, too)"
        ) from error
    task = load_task(options["task"], options["model"])
    with dtype_policy("float32"):  # of all weights, those of mixed precision included
        model = task.build(info)
    newest = os.path.join(directory, f"step-{max(steps)}")
    try:
        _check(newest, task, info)
        status = tf.train.Checkpoint(model=model).restore(newest)
        status.assert_existing_objects_matched().expect_partial()
    except DAMAGE as error:
        if damaged_file(newest) is None:
            raise ValueError(
                f"{newest} can't be loaded into the model of {options['task']}: {error!s:.300}"
            ) from error
        raise ValueError(
            f"checkpoint {damage_of(newest)}: choose another one, or train again"
        ) from error
    return TrainedModel(task, model, info, max(steps))


def _check(path: str, task: Task, info: DatasetInfo) -> None:
    now = RunIdentity.of(task, info, task.inputs(info), TrainOptions())
    differing = [
        change
        for change in now.stream_changes(read_identity(path))
        if change.name.partition(".")[0] in ("dataset", "task")
    ]
    if differing:
        listing = "".join(f"\n  {change}" for change in differing)
        raise ValueError(
            f"{path} was trained on another dataset or for another task than the newest command of "
            f"its run asked for:{listing}\n"
            "Choose another checkpoint, or the dataset that it was trained on."
        )
