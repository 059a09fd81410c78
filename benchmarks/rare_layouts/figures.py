"""The accuracy of frequent and of rare layouts, over the seeds of a setting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from benchmarks.rare_layouts.runs import Run

# Layouts with more than 100 training records, 20 to 100, and fewer, after Liu et al. 2019,
# "Large-Scale Long-Tailed Recognition in an Open World".
_MANY, _FEW = 100, 20


@dataclass(frozen=True, kw_only=True)
class Shots:
    """Layouts by their number of training records: bool [layouts] each."""

    many: npt.NDArray[np.bool_]
    medium: npt.NDArray[np.bool_]
    few: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, records: npt.NDArray[np.int64]) -> Self:
        """Divides layouts; `records` is int64 [layouts]."""
        many, few = records > _MANY, records < _FEW
        return cls(many=many, medium=~many & ~few, few=few)

    def __str__(self) -> str:
        return (
            f"{self.many.sum()} layouts with more than {_MANY} training records, "
            f"{self.medium.sum()} with {_FEW} to {_MANY}, {self.few.sum()} with fewer"
        )


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """An accuracy in percent: mean and standard deviation over seeds."""

    mean: float
    spread: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Summarizes the accuracies of some runs, 0 to 1."""
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(mean=100 * float(np.mean(values)), spread=100 * spread)

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.spread:.1f}"


def last_accuracies(runs: Sequence[Run], layouts: npt.NDArray[np.bool_]) -> list[float]:
    """Returns the mean accuracy over some layouts at the end of each run."""
    return [_mean(list(run.accuracies.values())[-1], layouts) for run in runs]


def steps_to(run: Run, target: float, layouts: npt.NDArray[np.bool_]) -> int | None:
    """Returns the first step at which the mean accuracy over some layouts reached a target."""
    return next(
        (step for step, found in run.accuracies.items() if _mean(found, layouts) >= target), None
    )


def _mean(accuracies: Sequence[float], layouts: npt.NDArray[np.bool_]) -> float:
    return float(np.asarray(accuracies)[layouts].mean())


def accuracy_table(
    runs: Mapping[str, Sequence[Run]], records: npt.NDArray[np.int64], *, natural: str
) -> list[str]:
    """Makes the lines of a table with a row for each setting.

    Args:
      runs: runs of each setting.
      records: number of training records of each layout, int64 [layouts].
      natural: the setting whose last accuracy is the target of the steps.
    """
    shots, every = Shots.of(records), np.ones(len(records), bool)
    groups = {"many": shots.many, "medium": shots.medium, "few": shots.few, "all": every}
    groups = {name: layouts for name, layouts in groups.items() if layouts.any()}
    targets = {
        name: float(np.mean(last_accuracies(runs[natural], layouts)))
        for name, layouts in groups.items()
    }
    names = "".join(f"{name:>14}" for name in groups)
    lines = [str(shots), "", f"{'accuracy in %':<12}{names}  steps to {natural}'s accuracy of few"]
    for name, of_setting in runs.items():
        cells = "".join(
            f"{Accuracy.of(last_accuracies(of_setting, layouts))!s:>14}"
            for layouts in groups.values()
        )
        goal = "few" if "few" in groups else "all"
        steps = [steps_to(run, targets[goal], groups[goal]) for run in of_setting]
        reached = ", ".join("never" if each is None else f"{each:,}" for each in steps)
        lines.append(f"{name:<12}{cells}  {reached}")
    return lines
