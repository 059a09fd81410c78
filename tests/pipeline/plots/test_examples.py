"""The contact sheet of receipts."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from pipeline.plots.examples import COLUMNS, ExamplePart, ExampleRow, draw_parts
from pipeline.plots.rendering import DPI, render


def row(*shades: int) -> ExampleRow:
    images = [np.full((32, 20, 3), (shade, 0, 255), np.uint8) for shade in shades]
    return ExampleRow(text=f"{len(shades)} images", images=images)


def test_each_image_is_drawn_once_and_parts_lie_one_below_the_other():
    parts = [
        ExamplePart(rows=[row(40), row(80, 81)]),
        ExamplePart(heading="the others", rows=[row(*range(120, 120 + COLUMNS))]),
    ]
    picture = render(draw_parts(parts))

    def places_of(shade: int) -> tuple[np.ndarray, np.ndarray]:
        return np.nonzero((picture == (shade, 0, 255)).all(axis=2))

    tops = []
    for shade in (40, 80, 120):
        rows, columns = places_of(shade)
        assert len(rows) > 1000
        tops.append(rows.min())
        assert columns.min() > 0.2 * picture.shape[1] - 2
    heights = np.diff(tops) / DPI
    assert heights[0] == pytest.approx(1.65, abs=0.1)
    assert heights[1] == pytest.approx(1.65 + 0.3, abs=0.1)
    places = [places_of(120 + at)[1].min() for at in range(COLUMNS)]
    assert places == sorted(set(places))
    texts = [text.get_text() for text in draw_parts(parts).texts]
    assert texts == ["the others"]
