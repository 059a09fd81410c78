"""Pictures of confusion: the labels of records, and the labels predicted."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from pipeline.plots.rendering import DPI, Picture, render, shorten

_MAX_LABELS = 30


def draw_confusion(confusion: npt.NDArray[np.int64], names: Sequence[str], label: str) -> Picture:
    """Draws the fraction of each label's records for which each label was predicted.

    Of more than 30 labels, those with the most mistakes are drawn; all others share the last row
    and the last column. The counts are exact.

    Args:
      confusion: int64 [pairs, 3], as in `pipeline.evaluation.evaluator.Evaluation`.
      names: names of the labels; position is id.
      label: the category whose values the labels are.
    """
    shown, counts = count_pairs(confusion, len(names))
    size = len(counts)
    right = confusion[confusion[:, 0] == confusion[:, 1], 2].sum()
    total = counts.sum()
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ticks = [shorten(names[index]) for index in shown] + ["all others"] * (size - len(shown))

    side = 2.5 + 0.27 * size
    figure = Figure(figsize=(side, side), layout="constrained", dpi=DPI)
    axes = figure.subplots()
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts):
        if count:
            color = "white" if share[row, column] > 0.5 else "#555555"
            axes.text(
                column, row, _count(int(count)), ha="center", va="center", size=6, color=color
            )
    ticks_at = np.arange(size)
    axes.set_xticks(ticks_at, ticks, rotation=90, size=7, parse_math=False)
    axes.set_yticks(ticks_at, ticks, size=7, parse_math=False)
    axes.set_xticks(ticks_at[:-1] + 0.5, minor=True)
    axes.set_yticks(ticks_at[:-1] + 0.5, minor=True)
    axes.grid(which="minor", color="#e4e4e4", linewidth=0.5)
    axes.tick_params(which="both", length=0)
    axes.set_xlabel(f"{label} predicted", parse_math=False)
    axes.set_ylabel(label, parse_math=False)
    labels = "all labels"
    if size > len(shown):
        labels = f"the {len(shown)} of {len(names):,} labels with the most mistakes"
    title = f"{right:,} of {total:,} records are right\nshown: {labels}"
    axes.set_title(title, size=9, loc="left")
    return render(figure)


def count_pairs(
    confusion: npt.NDArray[np.int64], labels: int, *, max_labels: int = _MAX_LABELS
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Chooses the labels to draw, and counts their records.

    Args:
      confusion: int64 [pairs, 3], as in `pipeline.evaluation.evaluator.Evaluation`.
      labels: number of labels.
      max_labels: maximum number of labels to draw.

    Returns:
      The labels in order, int64 [shown], and the number of records by label and label predicted,
      int64 [size, size]. If labels are left out, the last row and the last column are theirs, and
      size is shown + 1.
    """
    wrong = confusion[confusion[:, 0] != confusion[:, 1]]
    mistakes = np.bincount(wrong[:, 0], wrong[:, 2], labels)
    mistakes += np.bincount(wrong[:, 1], wrong[:, 2], labels)
    shown = np.sort(np.argsort(-mistakes, kind="stable")[:max_labels])
    # Labels that are left out share the position behind the last one. With labels 1 and 4 of 5
    # shown, positions are 2 0 2 2 1.
    position = np.full(labels, len(shown))
    position[shown] = np.arange(len(shown))
    size = len(shown) + (len(shown) < labels)
    counts = np.zeros((size, size), np.int64)
    np.add.at(counts, (position[confusion[:, 0]], position[confusion[:, 1]]), confusion[:, 2])
    return shown, counts


def _count(count: int) -> str:
    """Writes a count in at most 4 digits."""
    return str(count) if count < 10_000 else f"{count / 1000:.0f}k"
