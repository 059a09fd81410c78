"""A contact sheet of receipts: rows of images with a text beside each, in parts with headings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from pipeline.plots.samples import show_receipt

COLUMNS = 6
_WIDTH, _ROW, _HEADING, _GAP = 9, 1.65, 0.3, 0.05  # inches


@dataclass(frozen=True, kw_only=True, eq=False)
class ExampleRow:
    """A row of the sheet.

    Attributes:
      text: its text, of a few lines.
      images: [height, width, channels] each, at most 6.
    """

    text: str
    images: Sequence[npt.NDArray[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class ExamplePart:
    """A part of the sheet: rows below a heading, if it has one."""

    rows: Sequence[ExampleRow]
    heading: str = ""


def draw_parts(parts: Sequence[ExamplePart]) -> Figure:
    """Draws the parts, one below the other."""
    heights = [_HEADING * bool(part.heading) + _ROW * len(part.rows) for part in parts]
    total = sum(heights) + 2 * _GAP
    figure = Figure(figsize=(_WIDTH, total))
    top = total - _GAP  # inches from the lower edge, here as below
    for part, height in zip(parts, heights, strict=True):
        if part.heading:
            middle = (top - _HEADING / 2) / total
            figure.text(0.02, middle, part.heading, size=9, weight="bold", va="center")
        grid = figure.add_gridspec(
            len(part.rows),
            COLUMNS,
            left=0.2,
            right=0.99,
            bottom=(top - height) / total,
            top=(top - _HEADING * bool(part.heading)) / total,
            wspace=0.06,
            hspace=0.06,
        )
        for row_axes, row in zip(grid.subplots(squeeze=False), part.rows, strict=True):
            _draw_row(row_axes, row)
        top -= height
    return figure


def _draw_row(row_axes: npt.NDArray[Any], row: ExampleRow) -> None:
    row_axes[0].annotate(
        row.text, (-0.1, 0.5), xycoords="axes fraction", ha="right", va="center", size=8
    )
    for axes in row_axes:
        axes.axis("off")
    for axes, image in zip(row_axes, row.images, strict=False):
        axes.axis("on")
        axes.spines[:].set_color("#c8c8c8")
        show_receipt(axes, image, np.zeros((0, 4)))
