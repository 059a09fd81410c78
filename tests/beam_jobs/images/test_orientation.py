"""Images are stored upright, and their boxes with them."""

import struct

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("apache_beam")

from beam_jobs.images.image import ImageOptions, store_image
from tests.support.image_files import BOX, JPEG, RAW, SIZE, bounds_of_dark, decoded, drawn, oriented


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("options", [JPEG, RAW], ids=["jpeg", "raw"])
def test_pixels_and_boxes_turn_upright(
    options: ImageOptions, format_: str, orientation: int
) -> None:
    stored = store_image(oriented(drawn(), format_, orientation), [BOX], options)
    upright = {
        1: (6, 4, 22, 12),
        2: (26, 4, 42, 12),
        3: (26, 20, 42, 28),
        4: (6, 20, 22, 28),
        5: (4, 6, 12, 22),
        6: (20, 6, 28, 22),
        7: (20, 26, 28, 42),
        8: (4, 26, 12, 42),
    }[orientation]
    width, height = SIZE if orientation < 5 else SIZE[::-1]
    assert stored.pixels.size == (width, height)
    assert stored.full_size == (width, height)
    expected = tuple(side / (width, height)[at % 2] for at, side in enumerate(upright))
    found = np.asarray(stored.pixels)
    assert bounds_of_dark(found) == pytest.approx(expected)
    tolerance = 0 if options is JPEG else 1.5 / 32
    assert bounds_of_dark(decoded(stored)) == pytest.approx(
        stored.boxes[0][:4], abs=tolerance + 1e-9
    )
    if options is JPEG:
        assert (stored.width, stored.height) == (width, height)
        assert stored.boxes[0][:4] == pytest.approx(expected)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_boxes_of_the_upright_image_are_not_turned(format_: str, orientation: int) -> None:
    upright_size = SIZE if orientation < 5 else SIZE[::-1]
    turn = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    image = drawn(upright_size)
    image = image.transpose(turn[orientation]) if orientation in turn else image
    options = ImageOptions(box_frame="upright", quality=95)
    stored = store_image(oriented(image, format_, orientation), [BOX], options)
    assert (stored.width, stored.height) == upright_size
    assert bounds_of_dark(decoded(stored)) == pytest.approx(stored.boxes[0][:4])


@pytest.mark.parametrize("value", [0, 9, 65535])
def test_an_orientation_that_means_nothing_is_ignored(value: int) -> None:
    data = oriented(drawn(), "JPEG", value)
    assert store_image(data, [], JPEG).encoded == data


def test_a_png_may_give_its_orientation_after_its_pixels() -> None:
    data = oriented(drawn(), "PNG", 6)
    at = data.index(b"eXIf") - 4
    length = struct.unpack(">I", data[at : at + 4])[0] + 12
    chunk, rest = data[at : at + length], data[:at] + data[at + length :]
    end = rest.index(b"IEND") - 4
    stored = store_image(rest[:end] + chunk + rest[end:], [BOX], JPEG)
    assert (stored.width, stored.height) == SIZE[::-1]
