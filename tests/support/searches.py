"""Studies for tests, and trials that are no training runs."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution

from pipeline.searching.definition import LOSS, Definition
from pipeline.searching.outcome import Outcome
from pipeline.searching.space import Value
from pipeline.searching.study import SearchStudy, StudyOptions

SPACE = {
    "learning_rate": FloatDistribution(1e-4, 1e-1, log=True),
    "model.width": CategoricalDistribution([8, 16]),
}
FIRST = {"learning_rate": 1e-3, "model.width": 8}


def definition_of(**changes: Any) -> Definition:
    values = {"space": SPACE, "objective": LOSS, "digest": "d", "version": 1, "options": {}}
    return Definition(**{**values, **changes})


def open_study(
    folder: Path, *, trials: int = 3, definition: Definition | None = None, **options: Any
) -> SearchStudy:
    study = SearchStudy(folder, StudyOptions(trials=trials, **options))
    study.define(definition or definition_of(), first=FIRST)
    return study


class FakeRun:
    """Runs trials at once, and notes them; `outcomes` are those of the first calls."""

    def __init__(self, *outcomes: Outcome, during: Callable[[], None] = lambda: None) -> None:
        self.outcomes, self.during = list(outcomes), during
        self.calls: list[tuple[int, dict[str, Value], Path]] = []
        self._mutex = threading.Lock()

    def __call__(
        self,
        trial: optuna.Trial,
        values: dict[str, Value],
        folder: Path,
        should_stop: Callable[[], bool],
    ) -> Outcome:
        with self._mutex:
            self.calls.append((trial.number, values, folder))
            self.during()
            if self.outcomes:
                return self.outcomes.pop(0)
        return Outcome(ending="complete", value=float(trial.number), step=10)
