"""Draws a receipt's rows flat, and says where each text is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageDraw

from benchmarks.receipts.fonts import mean_advance
from benchmarks.receipts.glyphs import text_mask
from benchmarks.receipts.layout import Layout
from benchmarks.receipts.noise import grayscale, smooth_noise
from benchmarks.receipts.rows import Cell, Gap, Graphic, Row, Separator, TextRow
from benchmarks.receipts.symbols import symbol

_EM_LINES = 1.17  # line height of most fonts, in ems
_FRAME_LINES = 0.35  # added to a row by a frame


@dataclass(frozen=True, kw_only=True)
class FlatReceipt:
    """A printed receipt, seen straight on.

    Attributes:
      ink: "L" image, 0 = paper, 255 = full ink.
      boxes: float64 [texts, 4], xmin, ymin, xmax, ymax of each text's ink, in pixels.
      texts: the transcripts, in the order of `boxes`.
    """

    ink: Image.Image
    boxes: NDArray[np.float64]
    texts: tuple[str, ...]


def paper_size(layout: Layout, rows: list[Row]) -> tuple[float, float]:
    """Width and height of the paper, both in columns (widths of a body character)."""
    width = layout.paper.columns + 2 * layout.paper.margin
    return width, sum(map(_lines, rows)) * _line_columns(layout)


def render(
    layout: Layout, rows: list[Row], *, column_px: float, rng: np.random.Generator
) -> FlatReceipt:
    """Draws the rows.

    Args:
      layout: fonts and paper.
      rows: what is printed.
      column_px: width of a body character in pixels; the resolution.
      rng: how the print has faded.
    """
    width, height = (max(1, round(length * column_px)) for length in paper_size(layout, rows))
    drawing = _Drawing(layout, (width, height), column_px)
    for row in rows:
        drawing.add(row)
    ink = drawing.ink
    dot_px = drawing.line_px / 12
    if layout.type.dot_matrix and dot_px >= 1.5:
        ink = ImageChops.multiply(ink, _dots(ink.size, dot_px))
    boxes = np.array(drawing.boxes, dtype=np.float64).reshape(-1, 4)
    return FlatReceipt(ink=_fade(ink, rng), boxes=boxes, texts=tuple(drawing.texts))


def _lines(row: Row) -> float:
    if isinstance(row, TextRow):
        return row.height + (_FRAME_LINES if row.frame != "none" else 0)
    return 0.9 if isinstance(row, Separator) else row.lines


def _line_columns(layout: Layout) -> float:
    """Height of a line, in columns."""
    type_ = layout.type
    em_columns = 1 / (mean_advance(type_.family, bold=type_.bold) * type_.stretch)
    return em_columns * _EM_LINES * layout.paper.line_pitch


class _Drawing:
    """A receipt while rows are added to it, from top to bottom."""

    def __init__(self, layout: Layout, size: tuple[int, int], column_px: float) -> None:
        self.layout = layout
        self.column_px = column_px
        self.line_px = _line_columns(layout) * column_px
        self.em_px = self.line_px / _EM_LINES / layout.paper.line_pitch
        self.left = layout.paper.margin * column_px
        self.width = layout.paper.columns * column_px
        self.ink = Image.new("L", size)
        self.draw = ImageDraw.Draw(self.ink)
        self.y = 0.0
        self.boxes: list[tuple[float, float, float, float]] = []
        self.texts: list[str] = []

    def add(self, row: Row) -> None:
        height = _lines(row) * self.line_px
        if isinstance(row, TextRow):
            self._frame(row, height)
            for cell in row.cells:
                self._text(row, cell, height)
        elif isinstance(row, Separator):
            self._separator(row.style, self.y + height / 2)
        elif isinstance(row, Graphic):
            mask = symbol(
                row.kind, row.payload, height=max(4, round(height)), width=int(self.width)
            )
            x = self._aligned(row.alignment, self.left, self.width, mask.width)
            self.ink.paste(255, (x, round(self.y)), mask)
        else:
            assert isinstance(row, Gap)
        self.y += height

    def _frame(self, row: TextRow, height: float) -> None:
        pad = 0.6 * self.column_px
        edges = (self.left - pad, self.y, self.left + self.width + pad, self.y + height * 0.97)
        if row.frame == "inverse":
            self.draw.rectangle(edges, fill=255)
        elif row.frame == "boxed":
            self.draw.rectangle(edges, outline=255, width=max(1, round(self.em_px / 12)))

    def _text(self, row: TextRow, cell: Cell, height: float) -> None:
        type_ = self.layout.type
        bold = row.bold or type_.bold
        mask, (width, glyph_height) = text_mask(
            cell.text, type_.family, bold=bold, size=self.em_px * row.height
        )
        room = (cell.stop - cell.start) * self.column_px
        stretched = min(width * type_.stretch * row.width / row.height, room)
        glyphs = mask.resize(
            (max(1, round(stretched)), max(1, round(glyph_height))), Image.Resampling.BILINEAR
        )
        start = self.left + cell.start * self.column_px
        x = self._aligned(cell.alignment, start, room, glyphs.width)
        y = round(self.y + (height - glyphs.height) / 2)
        self.ink.paste(0 if row.frame == "inverse" else 255, (x, y), glyphs)
        extent = glyphs.getbbox()
        if extent is None:
            raise AssertionError(f"the text {cell.text!r} left no ink; a font misses its letters")
        self.boxes.append((x + extent[0], y + extent[1], x + extent[2], y + extent[3]))
        self.texts.append(cell.text)

    def _separator(self, style: str, y: float) -> None:
        thickness = max(1, round(self.em_px / 14))
        right = self.left + self.width
        if style in ("rule", "double_rule"):
            offsets = (0.0,) if style == "rule" else (-1.5 * thickness, 1.5 * thickness)
            for offset in offsets:
                self.draw.line((self.left, y + offset, right, y + offset), 255, thickness)
        elif style != "blank":
            mark = {"dashes": "-", "equals": "=", "stars": "*", "dots": ". "}[style]
            marks = mark * (self.layout.paper.columns // len(mark))
            glyphs, _ = text_mask(marks, "mono", bold=False, size=self.em_px)
            glyphs = glyphs.resize((max(1, int(self.width)), glyphs.height))
            self.ink.paste(255, (round(self.left), round(y - glyphs.height / 2)), glyphs)

    def _aligned(self, alignment: str, start: float, room: float, width: int) -> int:
        slack = {"left": 0.0, "center": (room - width) / 2, "right": room - width}[alignment]
        return round(start + slack)


def _dots(size: tuple[int, int], dot_px: float) -> Image.Image:
    """The needle pattern of a dot-matrix printer, as a mask."""
    across, down = (np.cos(np.arange(length) * (2 * np.pi / dot_px)) for length in size)
    return grayscale((0.85 + 0.4 * (across[None, :] + down[:, None])).astype(np.float32))


def _fade(ink: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Weaker and stronger print: in patches, and along the heating elements of the head."""
    size = (64, 128)
    strength = 1 - rng.uniform(0.02, 0.3) * smooth_noise(rng, size, (3, 6))
    strength -= rng.uniform(0, 0.12) * rng.random(size[0], dtype=np.float32)[None, :]
    mask = grayscale(strength).resize(ink.size, Image.Resampling.BILINEAR)
    return ImageChops.multiply(ink, mask)
