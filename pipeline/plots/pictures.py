"""Pictures of an evaluation: what is taken for what, and receipts with what is predicted."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
import numpy.typing as npt
from matplotlib import pyplot
from matplotlib.patches import Rectangle
from PIL import Image

Picture = npt.NDArray[np.uint8]  # [height, width, 3]

_SHOWN = 30
_NAME_LENGTH = 22
_COLUMNS = 4
_RIGHT, _WRONG, _NEUTRAL = "#2a7f62", "#c0392b", "#333333"
_MASK = np.array([0.82, 0.1, 0.35])
_DPI = 100


def draw_confusion(confusion: npt.NDArray[np.int64], names: Sequence[str], label: str) -> Picture:
    """Draws which part of each label's records was taken for which label.

    Of more than 30 labels, those in most mistakes are drawn, as what was right or as what was
    predicted; all others share a last row and column. The counts are exact.

    Args:
      confusion: as in `pipeline.evaluation.evaluator.Evaluation`.
      names: of the labels; position is id.
      label: what they are values of.
    """
    shown, counts = confusion_shown(confusion, len(names))
    size = len(counts)
    right = confusion[confusion[:, 0] == confusion[:, 1], 2].sum()
    total = counts.sum()
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ticks = [_short(names[each]) for each in shown] + ["all others"] * (size - len(shown))

    side = 2.5 + 0.27 * size
    figure, axes = pyplot.subplots(figsize=(side, side), layout="constrained", dpi=_DPI)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts):
        if count:
            color = "white" if share[row, column] > 0.5 else "#555555"
            axes.text(
                column, row, _count(int(count)), ha="center", va="center", size=6, color=color
            )
    places = np.arange(size)
    axes.set_xticks(places, ticks, rotation=90, size=7, parse_math=False)
    axes.set_yticks(places, ticks, size=7, parse_math=False)
    axes.set_xticks(places[:-1] + 0.5, minor=True)
    axes.set_yticks(places[:-1] + 0.5, minor=True)
    axes.grid(which="minor", color="#e4e4e4", linewidth=0.5)
    axes.tick_params(which="both", length=0)
    axes.set_xlabel(f"{label} predicted", parse_math=False)
    axes.set_ylabel(label, parse_math=False)
    which = f"the {len(shown)} of {len(names):,} in most mistakes" if size > len(shown) else "all"
    title = f"{right:,} of {total:,} records are right\nshown: {which}"
    axes.set_title(title, size=9, loc="left")
    return _render(figure)


def confusion_shown(
    confusion: npt.NDArray[np.int64], labels: int, *, most: int = _SHOWN
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Which labels are drawn, and how many records of each were taken for which.

    Args:
      confusion: as in `pipeline.evaluation.evaluator.Evaluation`.
      labels: how many there are.
      most: of more than these, so many are drawn.

    Returns:
      The labels, in order, and records [right, predicted]; the last row and the last column are of
      all other labels, where there are others.
    """
    wrong = confusion[confusion[:, 0] != confusion[:, 1]]
    mistakes = np.bincount(wrong[:, 0], wrong[:, 2], labels)
    mistakes += np.bincount(wrong[:, 1], wrong[:, 2], labels)
    shown = np.sort(np.argsort(-mistakes, kind="stable")[:most])
    place = np.full(labels, len(shown))
    place[shown] = np.arange(len(shown))
    size = len(shown) + (len(shown) < labels)
    counts = np.zeros((size, size), np.int64)
    np.add.at(counts, (place[confusion[:, 0]], place[confusion[:, 1]]), confusion[:, 2])
    return shown, counts


def draw_samples(
    batch: Mapping[str, Any], predictions: Mapping[str, Any], names: Sequence[str]
) -> Picture:
    """Draws images, with what is predicted of each and what is right.

    Masks are laid over the image, within the outlines of true boxes; of "label" the name is given,
    of other predictions the number.

    Args:
      batch: features by name, [n, ...], "image" among them; and the truth, where there is one.
      predictions: as of `pipeline.tasks.base.Task.predictions`.
      names: of the labels; position is id.
    """
    images = batch["image"]
    height, width = images.shape[1:3]
    columns = min(_COLUMNS, len(images))
    rows = -(-len(images) // columns)
    cell = 2.4
    lines = 0.1 + 0.15 * len(_captions(batch, predictions, names, 0))
    figure, grid = pyplot.subplots(
        rows,
        columns,
        figsize=(columns * cell, rows * (cell * height / width + lines)),
        layout="constrained",
        squeeze=False,
        dpi=_DPI,
    )
    for number, axes in enumerate(grid.flat):
        if number >= len(images):
            axes.axis("off")
            continue
        axes.spines[:].set_color("#c8c8c8")
        boxes = batch["boxes"][number] if "boxes" in batch else np.zeros((0, 4))
        show_receipt(axes, _overlaid(images[number], predictions, number), boxes, color=_RIGHT)
        captions = _captions(batch, predictions, names, number)
        for line, (text, color) in enumerate(reversed(captions)):
            axes.annotate(
                text,
                (0, 1),
                (0, 3 + 10 * line),
                xycoords="axes fraction",
                textcoords="offset points",
                size=7.5,
                color=color,
                parse_math=False,
                annotation_clip=False,
            )
    return _render(figure)


def show_receipt(
    axes: pyplot.Axes, image: npt.NDArray[Any], boxes: npt.NDArray[Any], *, color: str = _WRONG
) -> None:
    """Shows an image, [height, width, channels], and the outlines of its boxes; rows of 0 are none.

    Args:
      axes: where.
      image: in 0…1, or uint8.
      boxes: (ymin, xmin, ymax, xmax) in 0…1, [n, 4].
      color: of the outlines.
    """
    height, width, _ = image.shape
    # Pixel 0 reaches from 0 to 1, as boxes have it.
    axes.imshow(_rgb(image), extent=(0, width, height, 0))
    for ymin, xmin, ymax, xmax in boxes[boxes.any(axis=1)]:
        corner = (xmin * width, ymin * height)
        sides = ((xmax - xmin) * width, (ymax - ymin) * height)
        axes.add_patch(Rectangle(corner, *sides, fill=False, color=color, linewidth=0.5))
    axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])


def _captions(
    batch: Mapping[str, Any], predictions: Mapping[str, Any], names: Sequence[str], number: int
) -> list[tuple[str, str]]:
    """Lines of text and their colours."""
    lines = []
    for name, values in sorted(predictions.items()):
        if name.endswith("mask") or np.ndim(values) != 1:
            continue
        truth = batch[name][number] if name in batch else None
        if name != "label":
            told = _text(values[number])
            before = "" if truth is None else f"{_text(truth)} → "
            lines.append((f"{name} {before}{told}", _NEUTRAL))
            continue
        predicted = _short(names[values[number]])
        if truth is None:
            lines.append((predicted, _NEUTRAL))
            continue
        color = _RIGHT if truth == values[number] else _WRONG
        lines += [(f"{_short(names[truth])} →", _NEUTRAL), (predicted, color)]
    return lines


def _overlaid(image: npt.NDArray[Any], predictions: Mapping[str, Any], number: int) -> Any:
    """The image in 0…1, RGB, with the masks coloured."""
    shown = _rgb(image)
    height, width = shown.shape[:2]
    for name, masks in predictions.items():
        if name.endswith("mask"):
            mask = masks[number].astype(np.float32).reshape(masks[number].shape[:2])
            large = Image.fromarray(mask).resize((width, height), Image.Resampling.NEAREST)
            alpha = 0.55 * np.clip(np.asarray(large), 0, 1)[..., None]
            shown = shown * (1 - alpha) + _MASK * alpha
    return np.clip(shown, 0, 1)


def _rgb(image: npt.NDArray[Any]) -> Any:
    """An image in 0…1, or uint8, as RGB in 0…1."""
    shown = image / 255 if image.dtype == np.uint8 else image
    return np.repeat(shown, 3, axis=-1) if shown.shape[-1] == 1 else shown


def _short(name: str) -> str:
    return name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 1]}…"


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return _short(value.decode())
    return f"{value:.4g}" if isinstance(value, np.floating) else str(value)


def _count(count: int) -> str:
    return str(count) if count < 10_000 else f"{count / 1000:.0f}k"


def _render(figure: pyplot.Figure) -> Picture:
    figure.canvas.draw()
    picture = np.array(figure.canvas.buffer_rgba())[..., :3]
    pyplot.close(figure)
    return picture
