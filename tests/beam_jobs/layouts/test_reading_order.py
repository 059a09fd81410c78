"""Reading order: lines from the top, texts from the left, whatever order the boxes have."""

import math
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("apache_beam")

from beam_jobs.images.image import StoredImage
from beam_jobs.layouts.descriptors import BY_TEXT, Describer
from beam_jobs.layouts.reading_order import reading_lines
from beam_jobs.layouts.text import text_descriptor
from beam_jobs.sources.row import Box, Row

LINES = ["ALDI SÜD", "Hauptstr. 12", "50667 Köln", "Milch 1,09", "Summe 1,09"]
WIDTH, HEIGHT = 300, 480


def words(lines: list[str], *, degrees: float = 0.0) -> list[Box]:
    """Boxes of the words of text lines 30 pixels apart, turned about the upper left corner."""
    boxes = []
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    for number, line in enumerate(lines):
        for word in re.finditer(r"\S+", line):
            x, y = 10 + 8 * (word.start() + word.end()) / 2, 20.0 + 30 * number
            x, y = x * cosine - y * sine, x * sine + y * cosine
            half = 4 * len(word[0])
            boxes.append((x - half, y - 10, x + half, y + 10, word[0]))
    return boxes


@given(st.randoms(use_true_random=False))
def test_any_order_of_words_gives_the_lines(order: random.Random) -> None:
    boxes = words(LINES)
    order.shuffle(boxes)
    assert reading_lines(boxes) == LINES


@pytest.mark.parametrize("degrees", [-3, 3])
def test_lines_that_slope_stay_lines(degrees: float) -> None:
    assert reading_lines(words(LINES, degrees=degrees)) == LINES


@pytest.mark.parametrize(
    ("boxes", "lines"),
    [
        pytest.param([], [], id="none"),
        pytest.param([(0, 0, 9, 20, "b"), (0, 19, 9, 39, "c")], ["b", "c"], id="overlap"),
        pytest.param([(50, 0, 90, 40, "BIG"), (0, 14, 40, 26, "small")], ["small BIG"], id="sizes"),
        pytest.param(
            [
                (0, 0, 9, 200, "|"),
                (20, 0, 90, 20, "a"),
                (20, 30, 90, 50, "b"),
                (20, 150, 90, 170, "c"),
            ],
            ["a", "b", "|", "c"],
            id="a_bar_along_all_lines",
        ),
        pytest.param([(5, 0, 9, 9, "b"), (5, 0, 9, 9, "a")], ["a b"], id="at_one_place"),
    ],
)
def test_odd_boxes(boxes: list[Box], lines: list[str]) -> None:
    assert reading_lines(boxes) == lines
    assert reading_lines(boxes[::-1]) == lines


def stored(boxes: list[Box]) -> StoredImage:
    """An image as a record holds it, with boxes in pixels of an upright image."""
    relative = [
        (x0 / WIDTH, y0 / HEIGHT, x1 / WIDTH, y1 / HEIGHT, text) for x0, y0, x1, y1, text in boxes
    ]
    return StoredImage(
        encoded=b"",
        format="jpeg",
        height=HEIGHT,
        width=WIDTH,
        channels=3,
        boxes=tuple(relative),
        clipped_boxes=0,
        pixels=None,
        pixels_hash=0,
        full_size=(WIDTH, HEIGHT),
    )


def test_receipts_are_described_upright() -> None:
    """A photo that is stored upside down has its first line last in the file."""
    upright = words(LINES)
    in_file = [
        (WIDTH - x1, HEIGHT - y1, WIDTH - x0, HEIGHT - y0, t) for x0, y0, x1, y1, t in upright
    ]
    describer = Describer(BY_TEXT)
    describer.add(Row(id="a", uri="", boxes=in_file), stored(upright))
    describer.add(Row(id="b", uri="", boxes=upright))  # of a dry run
    expected = text_descriptor(LINES).tolist()
    assert describer.descriptors().tolist() == [expected, expected]
