"""A receipt as a list of rows, before anything is drawn.

Positions across the paper are in columns (the width of one body character), heights in lines.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import wrap


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of text, which becomes one box; `start` and `stop` in columns."""

    text: str
    start: float
    stop: float
    alignment: str = "left"


@dataclass(frozen=True, kw_only=True)
class TextRow:
    """Cells side by side; `width` and `height` are multiples of body text.

    `frame` is "none", "inverse" (white on black) or "boxed".
    """

    cells: tuple[Cell, ...]
    width: int = 1
    height: int = 1
    bold: bool = False
    frame: str = "none"


@dataclass(frozen=True, kw_only=True)
class Separator:
    """A line across the paper; it is drawn, but it is no text and gets no box."""

    style: str


@dataclass(frozen=True, kw_only=True)
class Graphic:
    """A logo or barcode.

    `kind` is one of `layout.LOGOS` or `layout.BARCODES`; `payload` is what a barcode encodes.
    `lines` is its height, `alignment` its place on the paper.
    """

    kind: str
    lines: float
    payload: str = ""
    alignment: str = "center"


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Unprinted paper."""

    lines: float


Row = TextRow | Separator | Graphic | Gap


def text_row(
    text: str,
    *,
    columns: int,
    alignment: str = "left",
    width: int = 1,
    height: int = 1,
    bold: bool = False,
    frame: str = "none",
) -> TextRow:
    """A row of one cell as wide as the paper."""
    cell = Cell(text=text, start=0, stop=columns, alignment=alignment)
    return TextRow(cells=(cell,), width=width, height=height, bold=bold, frame=frame)


def wrapped_rows(
    text: str,
    *,
    columns: int,
    alignment: str = "left",
    width: int = 1,
    height: int = 1,
    bold: bool = False,
    frame: str = "none",
) -> list[TextRow]:
    """Wraps a text into rows that fit the paper."""
    return [
        text_row(
            line,
            columns=columns,
            alignment=alignment,
            width=width,
            height=height,
            bold=bold,
            frame=frame,
        )
        for line in wrap(text, max(4, columns // width)) or [text]
    ]


def spread_row(
    left: str,
    right: str,
    *,
    columns: int,
    width: int = 1,
    height: int = 1,
    bold: bool = False,
    frame: str = "none",
) -> TextRow:
    """A label at the left edge, and its amount at the right edge."""
    edge = columns - len(right) * width
    return TextRow(
        cells=(
            Cell(text=left, start=0, stop=max(edge - 1, columns / 3)),
            Cell(text=right, start=edge, stop=columns, alignment="right"),
        ),
        width=width,
        height=height,
        bold=bold,
        frame=frame,
    )


def table_row(
    texts: Iterable[str],
    *,
    stops: tuple[float, ...],
    left: int,
    indent: float = 0,
    bold: bool = False,
) -> TextRow:
    """Cells that end at `stops` (columns); cell number `left` is the only left-aligned one."""
    cells = []
    start = indent
    for place, (text, stop) in enumerate(zip(texts, stops, strict=True)):
        if text:
            alignment = "left" if place == left else "right"
            cells.append(Cell(text=text, start=start, stop=stop, alignment=alignment))
        start = stop + 1
    return TextRow(cells=tuple(cells), bold=bold)


def shorten(text: str, columns: float) -> str:
    """The text cut to what a till would print in `columns` characters."""
    return text[: max(1, int(columns))].rstrip()
