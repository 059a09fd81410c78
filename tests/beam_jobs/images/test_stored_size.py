"""Large images are scaled down, raw ones to one size, and their boxes follow."""

from typing import Any

import pytest
from PIL import Image

pytest.importorskip("apache_beam")

from beam_jobs.images.image import ImageOptions, store_image
from beam_jobs.rejection import Reason, RejectionError
from beam_jobs.sources.row import Box
from tests.support.image_files import BOX, bounds_of_dark, decoded, drawn, oriented
from tests.support.pictures import encode


@pytest.mark.parametrize(
    ("size", "max_side", "expected"),
    [
        pytest.param((640, 480), 640, (640, 480), id="fits"),
        pytest.param((640, 480), 320, (320, 240), id="half"),
        pytest.param((480, 640), 100, (75, 100), id="upright"),
        pytest.param((1000, 700), 120, (120, 84), id="an_eighth"),
        pytest.param((333, 777), 100, (43, 100), id="rounded"),
        pytest.param((1999, 16), 130, (130, 1), id="never_zero"),
    ],
)
@pytest.mark.parametrize("format_", ["JPEG", "PNG"])
def test_larger_images_are_scaled_down(
    format_: str, size: tuple[int, int], max_side: int, expected: tuple[int, int]
) -> None:
    box: Box = (0.0, 0.0, size[0] / 2, size[1] / 2, "a")
    stored = store_image(
        encode(Image.new("RGB", size, "red"), format_),
        [box],
        ImageOptions(max_side=max_side, min_side=1),
    )
    assert (stored.width, stored.height) == expected
    assert decoded(stored).shape == (*expected[::-1], 3)
    assert stored.full_size == size
    assert stored.boxes[0][:4] == (0.0, 0.0, 0.5, 0.5)


@pytest.mark.parametrize("full_decode", [True, False])
def test_a_large_photo_without_its_exif_data_is_the_same_photo(full_decode: bool) -> None:
    photo = drawn((200, 100))
    plain = encode(photo, "JPEG", quality=95, subsampling=0)
    files = [plain, oriented(photo, "JPEG", 1), oriented(photo, "JPEG", 3)]
    options = ImageOptions(max_side=50, full_decode=full_decode)
    same, again, turned = (store_image(data, [], options) for data in files)
    assert (same.pixels.size == same.full_size) is full_decode
    assert files[0] != files[1]
    assert same.pixels_hash == again.pixels_hash != turned.pixels_hash


def test_a_turned_image_is_scaled_by_its_longer_side() -> None:
    data = oriented(drawn((200, 100)), "JPEG", 6)
    stored = store_image(data, [], ImageOptions(max_side=50))
    assert (stored.width, stored.height) == (25, 50)
    assert stored.full_size == (100, 200)


@pytest.mark.parametrize("size", [(48, 32), (32, 48), (64, 32), (500, 100), (100, 500)])
def test_raw_images_are_padded_and_their_boxes_moved(size: tuple[int, int]) -> None:
    width, height = size
    dark = (0, 0, width // 2, height // 2)
    stored = store_image(
        encode(drawn(size, dark), "PNG"),
        [(*map(float, dark), "a")],
        ImageOptions(encoding="raw", raw_size=(80, 60), channels=3),
    )
    assert (stored.format, stored.height, stored.width) == ("raw", 80, 60)
    assert len(stored.encoded) == 80 * 60 * 3
    pixels = decoded(stored)
    found, box = bounds_of_dark(pixels), stored.boxes[0][:4]
    assert found == pytest.approx(box, abs=1.01 / 60)
    # White beside the image, and the image in the middle.
    inner_width, inner_height = (
        (60, 60 * height / width) if width / height > 60 / 80 else (80 * width / height, 80)
    )
    assert box[2] - box[0] == pytest.approx(inner_width / 2 / 60, abs=1.01 / 60)
    assert box[3] - box[1] == pytest.approx(inner_height / 2 / 80, abs=1.01 / 60)
    assert pixels[-1, -1].tolist() == [255, 255, 255]


@pytest.mark.parametrize("channels", [1, 3])
def test_raw_images_are_stretched_and_their_boxes_stay(channels: Any) -> None:
    options = ImageOptions(encoding="raw", raw_size=(64, 96), fit="stretch", channels=channels)
    stored = store_image(encode(drawn(), "PNG"), [BOX], options)
    assert (stored.height, stored.width, stored.channels) == (64, 96, channels)
    assert len(stored.encoded) == 64 * 96 * channels
    assert stored.boxes[0][:4] == (6 / 48, 4 / 32, 22 / 48, 12 / 32)
    assert bounds_of_dark(decoded(stored)) == pytest.approx(stored.boxes[0][:4], abs=1 / 64)


@pytest.mark.parametrize("size", [(16, 9000), (9000, 16)], ids=["tall", "wide"])
@pytest.mark.parametrize("fit", ["pad", "stretch"])
def test_a_raw_image_of_extreme_shape_keeps_a_pixel(fit: Any, size: tuple[int, int]) -> None:
    options = ImageOptions(encoding="raw", raw_size=(256, 256), channels=1, fit=fit, min_side=1)
    stored = store_image(encode(Image.new("L", size, 0), "PNG"), [], options)
    assert (stored.height, stored.width) == (256, 256)
    assert decoded(stored).min() < 50


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_jpeg_of_extreme_shape_keeps_a_pixel(mode: str) -> None:
    data = encode(Image.new(mode, (16, 33_000)), "JPEG")
    stored = store_image(data, [], ImageOptions(min_side=1))
    assert (stored.width, stored.height) == (1, 1024)


@pytest.mark.parametrize(
    ("size", "options", "message"),
    [
        pytest.param(
            (300, 30_000),
            ImageOptions(),
            "300×30000 pixels become 10×1024 by --max-side 1024, of which the shorter side must be "
            "at least 16: cut the image into parts",
            id="jpeg",
        ),
        pytest.param(
            (30_000, 300),
            ImageOptions(encoding="raw", raw_size=(96, 640), channels=1),
            "30000×300 pixels become 640×6 by --raw-size 96x640, of which the shorter side must be "
            "at least 16: cut the image into parts",
            id="raw",
        ),
    ],
)
def test_a_roll_of_which_a_few_pixels_would_be_left_is_refused_undecoded(
    size: tuple[int, int], options: ImageOptions, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encode(Image.new("L", size, 255), "PNG")
    monkeypatch.setattr(Image.Image, "load", None)
    with pytest.raises(RejectionError) as caught:
        store_image(data, [], options)
    assert caught.value.args == (Reason.TOO_SMALL, message)


def test_a_roll_that_keeps_its_shorter_side_is_stored() -> None:
    data = encode(Image.new("L", (400, 12_000), 255), "PNG")
    assert store_image(data, [], ImageOptions()).width == 34
    stretched = ImageOptions(encoding="raw", raw_size=(64, 64), fit="stretch", channels=1)
    assert store_image(data, [], stretched).width == 64
