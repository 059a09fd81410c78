"""Draws the log of a run: loss and metrics by step."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_VALIDATION = "validation/"
_TRAINING, _ALL, _COMMON, _RARE = "#30638e", "#d1495b", "#8d99ae", "#edae49"
_WIDTH, _MARGINS = 9.0, (0.8, 0.2, 0.6, 0.7)  # inches; left, right, bottom and top
_SMOOTHED = 30  # points of a smoothed curve that can be told apart, about


def draw_curves(lines: Sequence[Mapping[str, float]], title: str, path: Path | BinaryIO) -> None:
    """Draws the loss, and below it each metric, also over the rare and common half of the layouts.

    Args:
      lines: lines of the log, in the order of their steps.
      title: title of the picture.
      path: PNG file to write, by its path or open.
    """
    names = dict.fromkeys(name for line in lines for name in line if name.startswith(_VALIDATION))
    metrics = [name.removeprefix(_VALIDATION) for name in names]
    shown = ["loss", *(name for name in metrics if "/" not in name and name != "loss")]
    width, height = _WIDTH, 1 + 2.8 * len(shown)
    figure = Figure(figsize=(width, height))
    # Margins are given: to have matplotlib find them, it would draw all twice.
    left, right, bottom, top = _MARGINS
    margins = {
        "left": left / width,
        "right": 1 - right / width,
        "bottom": bottom / height,
        "top": 1 - top / height,
        "hspace": 0.2,
    }
    grid = figure.subplots(len(shown), sharex=True, squeeze=False, gridspec_kw=margins)
    for name, axes in zip(shown, grid[:, 0], strict=True):
        if name == "loss":
            _draw_training(axes, *_points(lines, "loss"))
        for curve, label, color in curves_of(name, lines):
            steps, values = _points(lines, curve)
            if len(steps):
                axes.plot(
                    steps, values, "o-", label=label, color=color, markersize=3, linewidth=1.5
                )
        axes.set_title(name, loc="left", size=10, parse_math=False)
        axes.grid(color="#e8e8e8", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8)
    figure.text(left / width, 1 - 0.3 / height, title, size=11, parse_math=False)
    grid[-1, 0].set_xlabel("step")
    figure.savefig(path, dpi=120, format="png")


def curves_of(name: str, lines: Sequence[Mapping[str, float]]) -> Iterator[tuple[str, str, str]]:
    """Yields the name in the log, the label and the color of each curve of a figure."""
    yield f"{_VALIDATION}{name}", "validation", _ALL
    if name == "loss":
        return
    for half, color in (("common", _COMMON), ("rare", _RARE)):
        curve = f"{_VALIDATION}{name}/{half}_half"
        _, layouts = _points(lines, f"{curve}_layouts")
        _, records = _points(lines, f"{curve}_records")
        if layouts and records:
            size = f"{layouts[-1]:,.0f} layouts, {records[-1]:,.0f} records"
            yield curve, f"validation, {half} half: {size}", color


def _draw_training(axes: Axes, steps: Sequence[float], values: Sequence[float]) -> None:
    """Draws the training loss, pale, and its moving average."""
    if not steps:
        return
    width = max(1, len(values) // _SMOOTHED)
    if width == 1:
        axes.plot(steps, values, color=_TRAINING, label="training", linewidth=1.5)
        return
    axes.plot(steps, values, color=_TRAINING, alpha=0.25, linewidth=0.8)
    # Means of the last `width` values, or of fewer at the start, by differences of running sums.
    ends = np.arange(1, len(values) + 1)
    sums = np.cumsum([0.0, *values])
    smooth = (sums[ends] - sums[np.maximum(ends - width, 0)]) / np.minimum(ends, width)
    axes.plot(steps, smooth, color=_TRAINING, label=f"training, mean of {width}", linewidth=1.5)


def _points(
    lines: Sequence[Mapping[str, float]], name: str
) -> tuple[Sequence[float], Sequence[float]]:
    points = [(line["step"], line[name]) for line in lines if name in line]
    return [step for step, _ in points], [value for _, value in points]
