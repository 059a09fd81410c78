"""Receipts are drawn on flat paper, with a box around each text."""

from collections import defaultdict

import numpy as np
import pytest

from benchmarks.receipts.compose import compose
from benchmarks.receipts.content import draw_branch, draw_purchase
from benchmarks.receipts.fonts import font
from benchmarks.receipts.layout import Layout, draw_layout
from benchmarks.receipts.randomness import stream
from benchmarks.receipts.render import paper_size, render
from benchmarks.receipts.rows import Gap, Row, TextRow


def composed(index: int) -> tuple[Layout, list[Row], int]:
    """A layout, the rows of one of its receipts, and the receipt's total in cents."""
    layout = draw_layout(0, index)
    purchase = draw_purchase(stream(0, "test", index), layout)
    return layout, compose(layout, draw_branch(0, layout, 0), purchase), purchase.total_cents


@pytest.mark.parametrize("index", range(0, 60, 4))
def test_flat_boxes_hold_all_ink_of_the_text_and_fit_it_tightly(index: int) -> None:
    layout, rows, _ = composed(index)
    plain: list[Row] = [
        row
        for row in rows
        if isinstance(row, Gap) or (isinstance(row, TextRow) and row.frame == "none")
    ]
    flat = render(layout, plain, column_px=9.0, rng=stream(0, "test"))
    ink = np.asarray(flat.ink).astype(float)
    outside = ink.copy()
    assert len(flat.texts) == len(flat.boxes) >= 5
    for xmin, ymin, xmax, ymax in flat.boxes.astype(int):
        inside = ink[ymin:ymax, xmin:xmax]
        assert inside.mean() > 15
        outside[ymin:ymax, xmin:xmax] = 0
    assert outside.max() == 0
    assert (flat.boxes[:, :2] >= 0).all()
    assert (flat.boxes[:, 2:] <= flat.ink.size).all()


def test_every_letter_is_in_its_font() -> None:
    ttlib = pytest.importorskip("fontTools.ttLib")
    letters: dict[tuple[str, bool], set[str]] = defaultdict(set)
    for index in range(120):
        layout, rows, _ = composed(index)
        for row in rows:
            if isinstance(row, TextRow):
                bold = row.bold or layout.type.bold
                letters[layout.type.family, bold].update(*(cell.text for cell in row.cells))
    assert len(letters) >= 10
    for (family, bold), used in letters.items():
        known = ttlib.TTFont(font(family, bold=bold, size=10).path).getBestCmap()
        assert {letter for letter in used if ord(letter) not in known} == set(), family


def test_paper_size_scales_with_the_resolution() -> None:
    layout, rows, _ = composed(2)
    width, height = paper_size(layout, rows)
    flat = render(layout, rows, column_px=8.0, rng=stream(0, "test"))
    assert flat.ink.size == (round(width * 8), round(height * 8))
