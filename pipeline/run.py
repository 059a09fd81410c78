"""A training run: steps, evaluations and checkpoints until the end, or until it is told to stop."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.checkpoints import Checkpoints
from pipeline.report import Report
from pipeline.run_folder import BEST, CHECKPOINTS, RunFolder
from pipeline.trainer import Progress, Trainer

Figures = Mapping[str, float]

STOPPED = 75  # EX_TEMPFAIL of sysexits.h: run the same command again to go on


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run does beside training.

    Attributes:
      checkpoint_every: steps from a checkpoint to the next.
      keep: checkpoints that are kept, beside the best.
      evaluate_every: steps from an evaluation to the next; None for one at the end.
      evaluation_split: the split to evaluate on.
      patience: evaluations without a lower loss after which the run ends; None for any number.
      other_data: go on from a checkpoint of other data or other options.
    """

    checkpoint_every: int = 200
    keep: int = 3
    evaluate_every: int | None = None
    evaluation_split: str = "validation"
    patience: int | None = None
    other_data: bool = False

    def __post_init__(self) -> None:
        for name in ("checkpoint_every", "keep", "evaluate_every", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.patience is not None and self.evaluate_every is None:
            raise ValueError(
                f"patience {self.patience} counts evaluations, and there is only one, at the end: "
                "give evaluate_every"
            )


class RunCheckpoints(NamedTuple):
    """A run's checkpoints: the newest ones, and the one with the lowest loss."""

    newest: Checkpoints
    best: Checkpoints


def resume(trainer: Trainer, folder: RunFolder, options: RunOptions) -> RunCheckpoints:
    """Brings the trainer to the newest checkpoint, if there is one.

    Raises:
      ValueError: the checkpoint is of another run, or there is nothing to evaluate on.
    """
    if not trainer.info.records(options.evaluation_split):
        raise ValueError(
            f"split {options.evaluation_split!r} of {trainer.info.data_dir} is empty: choose "
            "another evaluation_split"
        )
    checkpoints = RunCheckpoints(
        newest=_checkpoints(trainer, folder, CHECKPOINTS, options.keep),
        best=_checkpoints(trainer, folder, BEST, 1),
    )
    checkpoints.newest.restore(other_data=options.other_data)
    return checkpoints


def run(
    trainer: Trainer,
    folder: RunFolder,
    options: RunOptions,
    checkpoints: RunCheckpoints,
    *,
    show: Callable[[Progress, Figures, Figures | None], None] = lambda *_: None,
) -> bool:
    """Trains to the end, from where the trainer is.

    A SIGTERM, to any worker, ends the run after a checkpoint; with parameter servers, to the chief.

    Args:
      trainer: what is trained.
      folder: where the run's files go.
      options: how often.
      checkpoints: of `resume`.
      show: called after each call of the devices, with its figures and those of the evaluation
        that followed, if any.

    Returns:
      Whether the run has come to its end.
    """
    report = Report(trainer, folder, options.evaluation_split)
    total = trainer.options.steps
    losses = [
        line["validation/loss"]
        for line in folder.lines()
        if "validation/loss" in line and line["step"] <= trainer.step
    ]
    with _termination() as told:
        batches = trainer.batches() if trainer.step < total else None
        ended = trainer.step == total or _patience_is_over(losses, options.patience)
        while not ended:
            started = time.monotonic()
            progress = trainer.train(batches, _steps_to_go(trainer, options))
            elapsed_s = time.monotonic() - started
            found = None
            figures = _figures(trainer, progress, elapsed_s)
            folder.log(progress.step, figures)
            if _is_due(progress.step, options.evaluate_every, total):
                evaluation = trainer.evaluate(options.evaluation_split)
                found = report.write(progress.step, evaluation)
                loss = evaluation.averages["loss"]
                if not losses or loss < min(losses):
                    checkpoints.best.save(progress.step)
                losses.append(loss)
            ended = progress.step == total or _patience_is_over(losses, options.patience)
            stopping = trainer.agree(bool(told))
            if ended or stopping or progress.step % options.checkpoint_every == 0:
                checkpoints.newest.save(progress.step)
            show(progress, figures, found)
            if stopping:
                break
    return ended


def _checkpoints(trainer: Trainer, folder: RunFolder, name: str, keep: int) -> Checkpoints:
    return Checkpoints(
        os.path.join(folder.path, name),
        model=trainer.model,
        optimizer=trainer.optimizer,
        identity=trainer.identity(),
        keep=keep,
        is_chief=folder.is_chief,
    )


def _steps_to_go(trainer: Trainer, options: RunOptions) -> int:
    """Steps to the next call's end, where something may be due."""
    ends = [trainer.options.steps - trainer.step, trainer.options.steps_per_call]
    for every in (options.checkpoint_every, options.evaluate_every):
        if every is not None:
            ends.append(every - trainer.step % every)
    return min(ends)


def _is_due(step: int, every: int | None, total: int) -> bool:
    return step == total or (every is not None and step % every == 0)


def _patience_is_over(losses: list[float], patience: int | None) -> bool:
    if patience is None or not losses:
        return False
    return len(losses) - 1 - int(np.argmin(losses)) >= patience


def _figures(trainer: Trainer, progress: Progress, elapsed_s: float) -> dict[str, float]:
    images = len(progress.losses) * trainer.options.global_batch_size
    return {
        "loss": float(np.mean(progress.losses)),
        "images_per_s": images / elapsed_s,
        "input_wait": progress.waited_s / elapsed_s,
        "learning_rate": float(trainer.optimizer.learning_rate.numpy()),
    }


@contextmanager
def _termination() -> Iterator[list[int]]:
    """A list that gets an element when this process is told to end."""
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    try:
        yield told
    finally:
        signal.signal(signal.SIGTERM, before)
