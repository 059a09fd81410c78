"""Trials that are runs of `pipeline.train`, each in a process of its own."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import optuna

from pipeline.distribution.stop_request import STOPPED
from pipeline.searching.definition import LOSS, Definition
from pipeline.searching.outcome import Ending, Outcome
from pipeline.searching.space import Value, to_flags
from pipeline.training.run_log import LOG, last_step, read_log

OUTPUT = "output.txt"
_REFUSED = 2  # exit status of pipeline.train
_POLL_S = 0.5
_FOLDER_IN_USE_S = 5.0


class ObjectiveError(ValueError):
    """Evaluations have no such figure; the message lists those that they have."""


class FindFault(Protocol):
    """Finds out why a trainer refused to train."""

    def __call__(self, values: Mapping[str, Value]) -> tuple[Ending, str]:
        """Checks the values of a trial once more.

        Returns:
          "unavailable" and the reason if other values would be refused, too; "refused" and the
          reason if these values alone are; "error" and "" if all is well now.
        """


class TrainingRun:
    """Runs a trial as `pipeline.train` in its run folder, and prunes it by its log.

    A process of its own frees all of TensorFlow's memory at its end, and may run out of memory
    without ending the search.
    """

    def __init__(
        self, definition: Definition, arguments: Sequence[str], find_fault: FindFault
    ) -> None:
        """Makes what runs the trials of a search.

        Args:
          definition: what the trials have in common.
          arguments: the arguments of `pipeline.train` that all trials get.
          find_fault: tells the fault of a trial's values from that of the dataset.
        """
        self._definition, self._find_fault = definition, find_fault
        # The last ones count: the study's version, even where the command names none.
        self._arguments = [*arguments, f"--version={definition.version}", "--quiet"]

    def __call__(
        self,
        trial: optuna.Trial,
        values: dict[str, Value],
        folder: Path,
        should_stop: Callable[[], bool],
    ) -> Outcome:
        """Trains until the run has ended, is pruned or must stop.

        Raises:
          ObjectiveError: the objective is none of the figures of the evaluations.
        """
        evaluations = _Evaluations(trial, folder, self._definition)
        arguments = [*self._arguments, *to_flags(values), f"--run-dir={folder}"]
        while True:
            with _trainer(arguments, folder) as process:
                is_pruned = _follow(process, evaluations, should_stop)
            outcome = self._outcome(process.returncode, values, folder, is_pruned=is_pruned)
            if outcome is not None:
                return outcome
            if should_stop() or _sleep_unless(should_stop):
                return Outcome(ending="stopped", step=last_step(folder))

    def _outcome(
        self, status: int, values: dict[str, Value], folder: Path, *, is_pruned: bool
    ) -> Outcome | None:
        """Tells how the trainer ended; None if it was told to stop, or its folder is in use."""
        step = last_step(folder)
        if status == 0:
            value = objective_of(read_log(folder), self._definition)
            if value is not None:
                return Outcome(ending="complete", value=value, step=step)
            return Outcome(
                ending="diverged", step=step, reason="no loss of an evaluation is finite"
            )
        if status in (STOPPED, -signal.SIGTERM):  # the latter while Python was still starting
            return Outcome(ending="pruned", step=step) if is_pruned else None
        said = _last_line(folder / OUTPUT)
        if status == _REFUSED:
            # The trainer refuses wrong values, and a dataset that is away for a minute as well.
            ending, because = self._find_fault(values)
            return Outcome(ending=ending, step=step, reason=because or said)
        losses = [line["loss"] for line in read_log(folder) if "loss" in line]
        if status == 1 and losses and losses[-1] is None:
            return Outcome(ending="diverged", step=step, reason=said)
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return Outcome(ending="error", step=step, reason=f"its trainer ended with {how}: {said}")


class _Evaluations:
    """Evaluations of a run, as far as the trial has been told of them."""

    def __init__(self, trial: optuna.Trial, folder: Path, definition: Definition) -> None:
        self._trial, self._definition = trial, definition
        self._log = folder / LOG
        self._size = -1
        so_far = trial.study.trials[trial.number]
        # Of earlier attempts; steps that are repeated come to the same figures.
        self._told = set(so_far.intermediate_values)
        # The trial with the defaults comes to its end, as all others are compared with it.
        self._may_be_pruned = not so_far.system_attrs.get("fixed_params")

    def should_prune(self) -> bool:
        """Reports new evaluations, and asks whether the trial should end after one of them."""
        size = self._log.stat().st_size if self._log.exists() else 0
        if size == self._size:
            return False
        self._size = size
        answers = []
        for line in read_log(self._log.parent):
            if LOSS not in line or line["step"] in self._told:
                continue
            self._told.add(line["step"])
            value = _figure(line, self._definition)
            if value is not None:
                self._trial.report(value, line["step"])
                answers.append(self._trial.should_prune())
        return any(answers) and self._may_be_pruned


def objective_of(lines: Sequence[dict[str, Any]], definition: Definition) -> float | None:
    """Returns the objective at the evaluation with the lowest loss, whose weights the run keeps.

    Returns:
      The objective; None if no evaluation has a finite loss and a finite objective.
    """
    evaluations = [
        (line[LOSS], value)
        for line in lines
        if line.get(LOSS) is not None and (value := _figure(line, definition)) is not None
    ]
    return min(evaluations, key=lambda pair: pair[0])[1] if evaluations else None


def _figure(line: dict[str, Any], definition: Definition) -> float | None:
    """Returns the objective of an evaluation; None if it is not finite."""
    if definition.objective not in line:
        names = [name for name in line if name.startswith("validation/")]
        raise ObjectiveError(
            f"--objective {definition.objective}: evaluations have no such figure, choose among "
            f"{', '.join(names)}"
        )
    value = line[definition.objective]
    return value if value is not None and math.isfinite(value) else None


@contextmanager
def _trainer(arguments: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs the trainer, which at the end of the `with` block has ended."""
    module = "pipeline.searching.trainer_process"
    command = [sys.executable, "-m", module, str(os.getpid()), *arguments]
    with (folder / OUTPUT).open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C comes to this process, which tells the trainer
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()


def _follow(
    process: subprocess.Popen[bytes], evaluations: _Evaluations, should_stop: Callable[[], bool]
) -> bool:
    """Waits for the end of a trainer, and stops it where it should; returns whether to prune it."""
    is_pruned = is_told = False
    while True:
        has_ended = process.poll() is not None  # before the log is read, so that nothing is missed
        is_pruned = evaluations.should_prune() or is_pruned
        if has_ended:
            return is_pruned
        if (is_pruned or should_stop()) and not is_told:
            process.terminate()
            is_told = True
        try:
            process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            continue


def _sleep_unless(should_stop: Callable[[], bool]) -> bool:
    """Waits until a run folder may be free again; returns whether to stop instead."""
    for _ in range(int(_FOLDER_IN_USE_S / _POLL_S)):
        if should_stop():
            return True
        time.sleep(_POLL_S)
    return False


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").split("\n") if path.exists() else []
    said = [line.strip() for line in lines if line.strip()]
    return said[-1].partition("error: ")[2] or said[-1] if said else "it said nothing"
