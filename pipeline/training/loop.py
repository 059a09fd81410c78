"""A training run: steps, evaluations and checkpoints, until its end or a request to stop."""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pipeline.distribution.stop_request import StopRequest
from pipeline.records.files import is_remote
from pipeline.records.info import DatasetInfo
from pipeline.training.checkpoints import Checkpoints
from pipeline.training.ledger import Ledger
from pipeline.training.non_finite import check_losses
from pipeline.training.progress import Progress
from pipeline.training.report import Report
from pipeline.training.run_directory import BEST, CHECKPOINTS, RunFolder
from pipeline.training.run_identity import COMPARISON_OPTIONS
from pipeline.training.run_lock import RunFolderInUseError
from pipeline.training.run_log import LOG
from pipeline.training.trainer import Trainer

Figures = Mapping[str, float]

_LISTED = 5


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run: checkpoints, evaluations and its end.

    Attributes:
      checkpoint_every: steps from one checkpoint to the next.
      keep: number of checkpoints to keep, beside the best one.
      evaluate_every: steps from one evaluation to the next; None for one evaluation at the end.
      evaluation_split: split to evaluate on.
      patience: number of evaluations without a lower loss after which the run ends; None for any
        number. Evaluations whose loss is not finite do not count.
      other_data: continue from a checkpoint of other data, another model or another order of the
        examples.
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
    """A run's checkpoints.

    Attributes:
      newest: the newest checkpoints.
      best: the checkpoint of the lowest validation loss.
      best_step: step of `best` when this process began; None if it was damaged or missing.
    """

    newest: Checkpoints
    best: Checkpoints
    best_step: int | None


def resume(
    trainer: Trainer,
    folder: RunFolder,
    options: RunOptions,
    *,
    warn: Callable[[str], None] = lambda _: None,
) -> RunCheckpoints:
    """Restores the newest whole checkpoint into the trainer, if there is one.

    Args:
      trainer: the trainer.
      folder: the run folder.
      options: options of the run.
      warn: called with each sentence that the user should read.

    Raises:
      ValueError: the checkpoint belongs to another run or lies behind the last step, workers see
        different checkpoints, or the split to evaluate on is empty.
    """
    check_evaluation_split(trainer.info, options)
    if damaged := folder.unreadable_lines():
        warn(
            f"{os.path.join(folder.path, LOG)}: {_numbered(damaged)} damaged and left out, with "
            "the evaluations that stood there"
        )
    best = _checkpoints(trainer, folder, BEST, options, 1, warn)
    checkpoints = RunCheckpoints(
        newest=_checkpoints(trainer, folder, CHECKPOINTS, options, options.keep, warn),
        best=best,
        best_step=best.whole_step(),
    )
    checkpoints.newest.restore(other_data=options.other_data)
    if not trainer.is_same(trainer.step):
        raise ValueError(
            f"workers see different checkpoints in {folder.path}, here that of step "
            f"{trainer.step}: choose a run folder on a file system that all workers share"
        )
    if trainer.step > trainer.options.steps:
        raise ValueError(
            f"the run in {folder.path} is at step {trainer.step}, and the last of its steps is "
            f"{trainer.options.steps}: choose more steps, or another run folder"
        )
    if checkpoints.best_step is None and any(map(math.isfinite, folder.evaluations().values())):
        warn(f"{os.path.join(folder.path, BEST)} is empty or damaged: the next evaluation fills it")
    changes = checkpoints.newest.changes
    folder.log_changes(trainer.step, changes)
    if changes:
        listing = "".join(f"\n  {change}" for change in changes)
        warn(f"from step {trainer.step + 1} on, other options count:{listing}")
    return checkpoints


def _numbered(lines: Sequence[int]) -> str:
    """Names lines: "line 3", "lines 3, 4, 5 and 20 more"."""
    more = f" and {len(lines) - _LISTED} more" if len(lines) > _LISTED else ""
    listed = ", ".join(map(str, lines[:_LISTED]))
    return f"line {listed} is" if len(lines) == 1 else f"lines {listed}{more} are"


def check_evaluation_split(info: DatasetInfo, options: RunOptions) -> None:
    """Checks that there is something to evaluate on.

    Raises:
      ValueError: the split is empty, or there is no such split.
    """
    if not info.records(options.evaluation_split):
        raise ValueError(
            f"split {options.evaluation_split!r} of {info.data_dir} is empty: choose another "
            "evaluation_split"
        )


def run(
    trainer: Trainer,
    folder: RunFolder,
    options: RunOptions,
    checkpoints: RunCheckpoints,
    *,
    stop: StopRequest | None = None,
    ledger: Ledger | None = None,
    show: Callable[[Progress, Figures, Figures | None], None] = lambda *_: None,
) -> bool:
    """Trains from the trainer's step to the end of the run.

    A request to stop, which may come to any worker, ends the run after a checkpoint. With parameter
    servers, it must come to the chief.

    Args:
      trainer: the trainer.
      folder: the run folder.
      options: options of the run.
      checkpoints: checkpoints of `resume`.
      stop: the request to stop, entered before the strategy was made; None if there is none.
      ledger: counts this process's time, from its start on; None to begin one now. The time of the
        run's earlier processes, which the log has, is added to it.
      show: called after each call of the devices, with its figures and those of the evaluation
        that followed, if any.

    Returns:
      True at the end of the run, False if it was stopped before.

    Raises:
      NonFiniteError: the loss of a step, or a weight that would be saved, is not finite.
      RunFolderInUseError: another process has taken over a run folder in an object store.
      StoreError: this store refuses or can't be reached.
    """
    stop, ledger = stop or StopRequest(), ledger or Ledger()
    if trainer.any_worker(stop.is_made):  # a signal may have come while the process started
        return False
    stop.loop_begins()
    folder.begin(trainer.step)
    folder.carry_on(trainer.step, ledger)
    evaluations = _Evaluations(trainer, folder, options, checkpoints, ledger)
    total = trainer.options.steps
    was_due = trainer.step > 0 and _is_due(trainer.step, options.evaluate_every, total)
    if was_due and trainer.any_worker(folder.is_chief and not evaluations.is_logged(trainer.step)):
        evaluations.evaluate()  # the run was stopped between a checkpoint and its evaluation
        folder.log_time(trainer.step, ledger)
    ended = trainer.step == total or evaluations.patience_is_over()
    if ended:
        return True
    batches = trainer.batches()
    # A kill before the next checkpoint loses what comes after this line.
    folder.log_time(trainer.step, ledger)
    ledger.enter("other")
    while not ended:
        steps = _steps_to_go(trainer, options)
        with stop.steps():
            progress, figures = _take_steps(trainer, batches, steps, ledger)
        folder.log(progress.step, figures)
        stopping = trainer.any_worker(stop.is_made)
        is_due = _is_due(progress.step, options.evaluate_every, total)
        # Save before the evaluation, which may take long or fail.
        if stopping or is_due or progress.step % options.checkpoint_every == 0:
            _check_claim(trainer, folder)
            folder.flush()
            _save(trainer, checkpoints.newest, ledger)
            folder.log_time(progress.step, ledger)
        evaluation = None
        if is_due and not stopping:
            evaluation = evaluations.evaluate()
            folder.log_time(progress.step, ledger)
            stopping = trainer.any_worker(stop.is_made)
        show(progress, figures, evaluation)
        ended = evaluation is not None and (
            progress.step == total or evaluations.patience_is_over()
        )
        if stopping:
            break
    return ended


class _Evaluations:
    """The evaluations of a run: what the log has of them, the best checkpoint, and the patience."""

    def __init__(
        self,
        trainer: Trainer,
        folder: RunFolder,
        options: RunOptions,
        checkpoints: RunCheckpoints,
        ledger: Ledger,
    ) -> None:
        self._trainer, self._options, self._best = trainer, options, checkpoints.best
        self._ledger = ledger
        self._report = Report(trainer, folder, options.evaluation_split)
        self._logged = folder.evaluations()
        # Losses that are not finite count neither for the best checkpoint nor for the patience.
        counted = {
            step: loss
            for step, loss in self._logged.items()
            if step <= trainer.step and math.isfinite(loss)
        }
        self._losses = list(counted.values())
        self._best_loss = _loss_of_best(checkpoints.best_step, counted)

    def is_logged(self, step: int) -> bool:
        """Tells whether the log had the evaluation of a step when this process began."""
        return step in self._logged

    def evaluate(self) -> Figures:
        """Evaluates, and saves the weights where they are the best; every worker must call it."""
        with self._ledger.of("evaluation"):
            evaluation = self._trainer.evaluate(self._options.evaluation_split)
            loss = evaluation.averages["loss"]
            if math.isfinite(loss):
                if loss < self._best_loss:
                    _save(self._trainer, self._best, self._ledger)
                    self._best_loss = loss
                self._losses.append(loss)
            # The log comes last: a step that is in it need not be evaluated again.
            return self._report.write(self._trainer.step, evaluation)

    def patience_is_over(self) -> bool:
        """Tells whether as many evaluations as allowed have brought no lower loss."""
        patience = self._options.patience
        if patience is None or not self._losses:
            return False
        return len(self._losses) - 1 - int(np.argmin(self._losses)) >= patience


def _checkpoints(
    trainer: Trainer,
    folder: RunFolder,
    name: str,
    options: RunOptions,
    keep: int,
    warn: Callable[[str], None],
) -> Checkpoints:
    identity = trainer.identity().also(
        {name: getattr(options, name) for name in COMPARISON_OPTIONS}
    )
    return Checkpoints(
        os.path.join(folder.path, name),
        model=trainer.model,
        optimizer=trainer.optimizer,
        identity=identity,
        keep=keep,
        is_chief=folder.is_chief,
        warn=warn,
    )


def _loss_of_best(step: int | None, losses: Mapping[int, float]) -> float:
    """Returns the loss that a new best checkpoint must undercut; infinite if there is no best."""
    if step is None:
        return math.inf
    # A kill between the checkpoint and the log leaves a best step that the log does not know.
    return losses.get(step, min(losses.values(), default=math.inf))


def _check_claim(trainer: Trainer, folder: RunFolder) -> None:
    """Ends all workers where another process has taken over the run folder."""
    if is_remote(folder.path) and trainer.any_worker(folder.is_taken()):
        raise RunFolderInUseError(
            f"another process has taken over run folder {folder.path}: this one ends at step "
            f"{trainer.step:,}, and writes nothing more"
        )


def _save(trainer: Trainer, checkpoints: Checkpoints, ledger: Ledger) -> None:
    with ledger.of("checkpoint"):
        trainer.check_weights()
        checkpoints.save(trainer.step)


def _take_steps(
    trainer: Trainer, batches: Any, steps: int, ledger: Ledger
) -> tuple[Progress, Figures]:
    started = time.monotonic()
    with ledger.steps() as parts:
        progress = trainer.train(batches, steps)
        parts.update(tracing=progress.tracing_s, input=progress.waited_s)
    check_losses(progress.losses, last_step=progress.step)
    return progress, _figures(trainer, progress, time.monotonic() - started)


def _steps_to_go(trainer: Trainer, options: RunOptions) -> int:
    """Computes the steps of the next call, which ends where a checkpoint or the like is due."""
    # At step 190, calls of 50 steps and checkpoints every 200 steps make this call one of 10.
    ends = [trainer.options.steps - trainer.step, trainer.options.steps_per_call]
    for every in (options.checkpoint_every, options.evaluate_every):
        if every is not None:
            ends.append(every - trainer.step % every)
    return min(ends)


def _is_due(step: int, every: int | None, total: int) -> bool:
    return step == total or (every is not None and step % every == 0)


def _figures(trainer: Trainer, progress: Progress, elapsed_s: float) -> dict[str, float]:
    images = len(progress.losses) * trainer.options.global_batch_size
    dropped = {} if progress.dropped is None else {"dropped_gradients": progress.dropped}
    return {
        "loss": float(np.mean(progress.losses)),
        "images_per_s": images / elapsed_s,
        "input_wait": progress.waited_s / elapsed_s,
        "learning_rate": float(trainer.optimizer.learning_rate.numpy()),
        **dropped,
    }
