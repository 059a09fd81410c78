"""Images are stored upright, and their boxes with them."""

import struct

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

pytest.importorskip("apache_beam")

from beam_jobs.images.image import ImageOptions, store_image
from tests.support.image_files import BOX, JPEG, RAW, SIZE, bounds_of_dark, decoded, drawn, oriented
from tests.support.pictures import encode
from tests.support.rare_images import XMP


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


def with_xmp(format_: str, size: tuple[int, int], orientation: int | None = None) -> bytes:
    """Returns the file of `drawn`, with an orientation in XMP and, perhaps, another in EXIF."""
    exif = Image.Exif()
    exif[0x010E] = "a description"
    if orientation:
        exif[0x0112] = orientation
    image = drawn(size)
    if format_ == "PNG":
        text = PngImagePlugin.PngInfo()
        text.add_itxt("XML:com.adobe.xmp", XMP.decode())
        return encode(image, format_, exif=exif, pnginfo=text)
    if format_ == "TIFF":
        return encode(image, format_, tiffinfo={700: XMP} | dict(exif))
    return encode(image, format_, exif=exif, xmp=XMP)


@pytest.mark.parametrize("size", [SIZE, (48, 160)], ids=["", "larger"])
@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", [None, 1])
def test_xmp_turns_nothing(format_: str, size: tuple[int, int], orientation: int | None) -> None:
    data = with_xmp(format_, size, orientation)
    assert b'tiff:Orientation="6"' in data
    stored = store_image(data, [BOX], ImageOptions(max_side=80, quality=95))
    scale = min(1, 80 / max(size))
    assert (stored.width, stored.height) == (size[0] * scale, size[1] * scale)
    expected = (6 / size[0], 4 / size[1], 22 / size[0], 12 / size[1])
    assert stored.boxes[0][:4] == pytest.approx(expected)
    assert bounds_of_dark(decoded(stored)) == pytest.approx(expected, abs=0.021)


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_turns_whatever_xmp_says(format_: str) -> None:
    stored = store_image(with_xmp(format_, SIZE, 8), [BOX], JPEG)
    assert (stored.width, stored.height) == SIZE[::-1]
    assert bounds_of_dark(decoded(stored)) == pytest.approx(stored.boxes[0][:4])
