"""Draws a hyperparameter search: options against the objective, progress, and importance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_BEST, _POINT, _BAR = "#d1495b", "#8d99ae", "#30638e"
_PANELS_A_ROW = 3


@dataclass(frozen=True, kw_only=True)
class TrialPoint:
    """A trial that has ended.

    Attributes:
      values: its options.
      error: what is drawn of it; lower is better.
      is_complete: False if it was pruned, and `error` is that of its last evaluation.
    """

    values: Mapping[str, str | int | float | bool | None]
    error: float
    is_complete: bool


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option that differs between trials.

    Attributes:
      name: its name.
      choices: its values, if it has a few; empty for a range of numbers.
      is_log: whether its axis is logarithmic.
    """

    name: str
    choices: tuple[str | int | float | bool | None, ...] = ()
    is_log: bool = False


def draw_options(
    points: Sequence[TrialPoint], options: Sequence[Option], error: str, path: Path
) -> None:
    """Draws the error against each option, with a color for each choice of another one.

    Args:
      points: the trials.
      options: ranges get a panel each, or all options where there are no ranges. The first option
        with choices gives the colors.
      error: label of the error.
      path: PNG file to write.
    """
    ranges = [option for option in options if not option.choices] or list(options)
    colored = next((each for each in options if each.choices and each not in ranges), None)
    columns = min(_PANELS_A_ROW, len(ranges))
    rows = -(-len(ranges) // columns)
    figure = Figure(figsize=(1 + 4.6 * columns, 0.6 + 3.6 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for axes in grid.flat[len(ranges) :]:
        axes.remove()
    for axes, option in zip(grid.flat, ranges, strict=False):
        _draw_option(axes, points, option, colored)
    for axes in grid[:, 0]:
        axes.set_ylabel(error, parse_math=False)
        _scale_errors(axes, points)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    if labels:
        grid[0, 0].legend(handles, labels, frameon=False, fontsize=8)
    figure.savefig(path, dpi=120, format="png")


def _draw_option(
    axes: Axes, points: Sequence[TrialPoint], option: Option, colored: Option | None
) -> None:
    groups = colored.choices if colored else (None,)
    colors = colormaps["viridis"](np.linspace(0.05, 0.85, len(groups)))
    for group, color in zip(groups, colors, strict=True):
        for is_complete in (False, True):
            shown = [
                point
                for point in points
                if point.is_complete == is_complete
                and (colored is None or point.values[colored.name] == group)
            ]
            label = f"{colored.name} {group}" if colored and is_complete else None
            axes.scatter(
                [_position(option, point) for point in shown],
                [point.error for point in shown],
                s=34,
                color=color if is_complete else "none",
                edgecolors=[color],
                label=label,
                alpha=0.9 if is_complete else 0.7,
            )
    if any(not point.is_complete for point in points):
        axes.scatter([], [], s=34, color="none", edgecolors="#888888", label="pruned")
    if option.choices:
        axes.set_xticks(range(len(option.choices)), [str(each) for each in option.choices])
    elif option.is_log:
        axes.set_xscale("log")
    axes.set_xlabel(option.name, parse_math=False)
    _dress(axes)


def _position(option: Option, point: TrialPoint) -> float:
    value = point.values[option.name]
    if option.choices:
        return option.choices.index(value)
    assert isinstance(value, int | float)
    return value


def draw_progress(points: Sequence[TrialPoint], error: str, path: Path) -> None:
    """Draws the error of each trial, and the lowest of complete ones so far.

    Args:
      points: the trials, in the order in which they ended.
      error: label of the error.
      path: PNG file to write.
    """
    figure = Figure(figsize=(8, 3.8), layout="constrained")
    axes = figure.subplots()
    numbers = np.arange(1, len(points) + 1)
    errors = np.array([point.error for point in points])
    complete = np.array([point.is_complete for point in points], bool)
    axes.scatter(numbers[complete], errors[complete], s=26, color=_POINT, label="complete")
    axes.scatter(
        numbers[~complete], errors[~complete], s=26, color="none", edgecolors=_POINT, label="pruned"
    )
    best = np.minimum.accumulate(np.where(complete, errors, np.inf))
    known = np.isfinite(best)
    axes.step(numbers[known], best[known], where="post", color=_BEST, label="best so far")
    axes.set_xlabel("trials that have ended")
    axes.set_ylabel(error, parse_math=False)
    _scale_errors(axes, points)
    axes.legend(frameon=False, fontsize=8)
    _dress(axes)
    figure.savefig(path, dpi=120, format="png")


def draw_importance(importance: Mapping[str, float], path: Path) -> None:
    """Draws the importance of each option, which add up to 1.

    Args:
      importance: importance by option, the highest first.
      path: PNG file to write.
    """
    figure = Figure(figsize=(7, 1 + 0.45 * len(importance)), layout="constrained")
    axes = figure.subplots()
    names, values = list(importance), list(importance.values())
    bars = axes.barh(names[::-1], values[::-1], color=_BAR)
    axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes.set_xlim(0, 1.1)
    axes.set_xlabel("importance")
    _dress(axes)
    figure.savefig(path, dpi=120, format="png")


def _scale_errors(axes: Axes, points: Sequence[TrialPoint]) -> None:
    """Makes the axis of errors logarithmic where they lie far apart."""
    errors = [point.error for point in points]
    if errors and min(errors) > 0 and max(errors) > 20 * min(errors):
        axes.set_yscale("log")


def _dress(axes: Axes) -> None:
    axes.grid(color="#e8e8e8", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
