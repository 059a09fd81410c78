"""Boxes follow the pixels they were drawn around."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

pytest.importorskip("apache_beam")

from beam_jobs.images.boxes import EXIF_TRANSPOSED, relative_boxes
from beam_jobs.rejection import Reason, RejectionError

SIZE = (40, 20)
BOX = (4.0, 2.0, 14.0, 7.0, "TOTAL")


@st.composite
def drawn_boxes(draw: st.DrawFn) -> tuple[int, int, int, int]:
    x = draw(st.lists(st.integers(0, SIZE[0]), min_size=2, max_size=2, unique=True))
    y = draw(st.lists(st.integers(0, SIZE[1]), min_size=2, max_size=2, unique=True))
    return min(x), min(y), max(x), max(y)


@given(drawn_boxes(), st.integers(1, 8))
@settings(deadline=None, max_examples=100)
def test_stored_boxes_turn_with_the_image(box: tuple[int, int, int, int], orientation: int) -> None:
    stored = Image.new("L", SIZE, 255)
    stored.paste(0, box)
    exif = stored.getexif()
    exif[0x0112] = orientation
    upright = ImageOps.exif_transpose(stored)
    [(x0, y0, x1, y1, text)], clipped = relative_boxes(
        [(*map(float, box), "text")], SIZE, orientation, "stored"
    )
    rows, columns = np.nonzero(np.asarray(upright) == 0)
    dark = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    width, height = upright.size
    assert (x0 * width, y0 * height, x1 * width, y1 * height) == pytest.approx(dark)
    assert (text, clipped) == ("text", 0)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_upright_boxes_stay_where_they_are(orientation: int) -> None:
    width, height = SIZE[::-1] if orientation in EXIF_TRANSPOSED else SIZE
    boxes, clipped = relative_boxes([BOX], SIZE, orientation, "upright")
    assert boxes == ((4 / width, 2 / height, 14 / width, 7 / height, "TOTAL"),)
    assert clipped == 0


@pytest.mark.parametrize(
    ("box", "relative", "clipped"),
    [
        pytest.param((0, 0, 40, 20), (0.0, 0.0, 1.0, 1.0), 0, id="whole_image"),
        pytest.param((-1, 0, 20, 10), (0.0, 0.0, 0.5, 0.5), 1, id="beyond_the_left"),
        pytest.param((20, 10, 41, 20.5), (0.5, 0.5, 1.0, 1.0), 1, id="beyond_the_corner"),
        pytest.param((-9e9, -9e9, 9e9, 9e9), (0.0, 0.0, 1.0, 1.0), 1, id="far_beyond"),
        pytest.param((0.5, 0.25, 1, 0.5), (0.0125, 0.0125, 0.025, 0.025), 0, id="subpixel"),
    ],
)
def test_boxes_are_clipped_to_the_image(
    box: tuple[float, ...], relative: tuple[float, ...], clipped: int
) -> None:
    found, count = relative_boxes([(*box, "t")], SIZE, 1, "stored")
    assert found[0][:4] == pytest.approx(relative)
    assert count == clipped


def test_clipped_boxes_are_counted() -> None:
    boxes = [BOX, (-1.0, 0.0, 5.0, 5.0, "a"), (0.0, 0.0, 41.0, 5.0, "b")]
    found, clipped = relative_boxes(boxes, SIZE, 6, "stored")
    assert [box[4] for box in found] == ["TOTAL", "a", "b"]
    assert clipped == 2


def test_no_boxes() -> None:
    assert relative_boxes([], SIZE, 1, "stored") == ((), 0)


@pytest.mark.parametrize(
    "box",
    [
        pytest.param((40, 0, 50, 10), id="right_of_the_image"),
        pytest.param((0, -5, 10, 0), id="above_the_image"),
        pytest.param((10, 5, 10, 9), id="no_width"),
        pytest.param((10, 5, 20, 5), id="no_height"),
        pytest.param((20, 5, 10, 9), id="sides_swapped"),
    ],
)
def test_a_box_without_area_is_refused(box: tuple[int, ...]) -> None:
    numbers = ", ".join(map(str, box))
    sentence = f"box ({numbers}) 'SUM' has no area inside the image of 40×20 pixels"
    with pytest.raises(RejectionError, match=re.escape(sentence)) as caught:
        relative_boxes([(*map(float, box), "SUM")], SIZE, 1, "stored")
    assert caught.value.reason == Reason.BOX_OUTSIDE
    assert caught.value.message == sentence


def test_the_image_that_the_message_names_is_the_one_the_boxes_belong_to() -> None:
    with pytest.raises(RejectionError, match="image of 20×40 pixels"):
        relative_boxes([(30.0, 0.0, 35.0, 5.0, "t")], SIZE, 6, "upright")
