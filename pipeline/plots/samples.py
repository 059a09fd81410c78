"""Pictures of sample receipts with their predictions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from pipeline.plots.rendering import DPI, Picture, render, shorten

_COLUMNS = 4
_CELL, _GAP, _LINE = 2.3, 0.1, 0.15  # inches: the width of an image, between images, a line of text
_RIGHT, _WRONG, _NEUTRAL = "#2a7f62", "#c0392b", "#333333"
_MASK = np.array([0.82, 0.1, 0.35])


def draw_samples(
    batch: Mapping[str, Any], predictions: Mapping[str, Any], names: Sequence[str]
) -> Picture:
    """Draws images with their predictions and their labels.

    Masks are laid over the image, together with the outlines of true boxes. Predictions of "label"
    are written as names, other predictions as numbers.

    Args:
      batch: features by name, [n, ...]: "image", and the true values of predictions if known.
      predictions: predictions by name, see `pipeline.tasks.base.Task.predictions`.
      names: names of the labels; position is id.
    """
    images = batch["image"]
    height, width = images.shape[1:3]
    columns = min(_COLUMNS, len(images))
    rows = -(-len(images) // columns)
    # All lies on one pair of axes, whose unit is an inch: axes for each image, laid out by
    # matplotlib, take four times as long, and training waits.
    tall = _CELL * height / width
    text = _LINE * len(_captions(batch, predictions, names, 0))
    size = (columns * (_CELL + _GAP) + _GAP, rows * (text + tall + _GAP) + _GAP)
    figure = Figure(figsize=size, dpi=DPI)
    axes = figure.add_axes((0, 0, 1, 1))
    for number, image in enumerate(images):
        row, column = divmod(number, columns)
        left = _GAP + column * (_CELL + _GAP)
        top = _GAP + row * (text + tall + _GAP) + text
        boxes = batch["boxes"][number] if "boxes" in batch else np.zeros((0, 4))
        shown = _overlaid(image, predictions, number)
        frame = (left, top, _CELL, tall)
        _show(axes, shown, boxes, color=_RIGHT, frame=frame)
        axes.add_patch(Rectangle((left, top), _CELL, tall, fill=False, color="#c8c8c8"))
        captions = _captions(batch, predictions, names, number)
        for line, (caption, color) in enumerate(reversed(captions)):
            baseline = top - _LINE * (line + 0.3)
            axes.text(left, baseline, caption, size=7.5, color=color, parse_math=False)
    axes.set(xlim=(0, size[0]), ylim=(size[1], 0), aspect="auto")
    axes.axis("off")
    return render(figure)


def show_receipt(
    axes: Axes, image: npt.NDArray[Any], boxes: npt.NDArray[Any], *, color: str = _WRONG
) -> None:
    """Shows an image and the outlines of its boxes.

    Args:
      axes: axes to draw on.
      image: float32 in 0…1, or uint8, [height, width, channels].
      boxes: float32 [n, 4] of (ymin, xmin, ymax, xmax) in 0…1; rows of 0 are padding.
      color: color of the outlines.
    """
    height, width, _ = image.shape
    _show(axes, image, boxes, color=color, frame=(0, 0, width, height))
    axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])


def _show(
    axes: Axes,
    image: npt.NDArray[Any],
    boxes: npt.NDArray[Any],
    *,
    color: str,
    frame: tuple[float, float, float, float],
) -> None:
    """Shows an image and its boxes in a frame of (left, top, width, height)."""
    left, top, width, height = frame
    # Pixel 0 extends from 0 to 1, as in the coordinates of boxes.
    axes.imshow(_rgb(image), extent=(left, left + width, top + height, top))
    for ymin, xmin, ymax, xmax in boxes[boxes.any(axis=1)]:
        corner = (left + xmin * width, top + ymin * height)
        sides = ((xmax - xmin) * width, (ymax - ymin) * height)
        axes.add_patch(Rectangle(corner, *sides, fill=False, color=color, linewidth=0.5))


def _captions(
    batch: Mapping[str, Any], predictions: Mapping[str, Any], names: Sequence[str], number: int
) -> list[tuple[str, str]]:
    """Makes lines of text and their colors."""
    lines = []
    for name, values in sorted(predictions.items()):
        if name.endswith("mask") or np.ndim(values) != 1:
            continue
        truth = batch[name][number] if name in batch else None
        if name != "label":
            before = "" if truth is None else f"{_text(truth)} → "
            lines.append((f"{name} {before}{_text(values[number])}", _NEUTRAL))
            continue
        predicted = shorten(names[values[number]])
        if truth is None:
            lines.append((predicted, _NEUTRAL))
            continue
        color = _RIGHT if truth == values[number] else _WRONG
        lines += [(f"{shorten(names[truth])} →", _NEUTRAL), (predicted, color)]
    return lines


def _overlaid(image: npt.NDArray[Any], predictions: Mapping[str, Any], number: int) -> Any:
    """Lays masks over an image; returns RGB in 0…1."""
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
    """Converts an image in 0…1, or uint8, to RGB in 0…1."""
    shown = image / 255 if image.dtype == np.uint8 else image
    return np.repeat(shown, 3, axis=-1) if shown.shape[-1] == 1 else shown


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return shorten(value.decode())
    return f"{value:.4g}" if isinstance(value, np.floating) else str(value)
