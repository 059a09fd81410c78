"""Outcomes of trials, and what runs one: the boundary between a search and training."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import optuna

from pipeline.searching.space import Value

Ending = Literal[
    "complete", "pruned", "diverged", "refused", "error", "lost", "unavailable", "stopped"
]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of an attempt at a trial.

    Attributes:
      ending: "complete" with a value; "pruned" by the pruner; "diverged" with a loss that is not
        finite; "refused", as its values do not fit together; "error" where another attempt may
        help; "lost" with its process, too often; "unavailable" where the dataset can't be read;
        "stopped" as asked.
      value: the objective, if complete.
      step: the last step that the run's log has.
      reason: a sentence for the user, where it is neither complete nor pruned.
    """

    ending: Ending
    value: float | None = None
    step: int = 0
    reason: str = ""


class OutageError(Exception):
    """Something that all trials need is away; the message says what."""


class TrialsFailError(Exception):
    """Trials fail here, and might not on another machine; the message says what to do."""


class RunTrial(Protocol):
    """Runs a trial in its folder until it ends, going on where an earlier attempt was.

    It reports evaluations to the trial, asks it whether to prune, and ends soon once `should_stop`
    says so. `pipeline.searching.training_run` is the one that trains; benchmarks have others.
    """

    def __call__(
        self,
        trial: optuna.Trial,
        values: dict[str, Value],
        folder: Path,
        should_stop: Callable[[], bool],
    ) -> Outcome:
        """Runs the trial with values of the options of the space."""
