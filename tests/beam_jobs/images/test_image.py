"""An image file becomes what the record holds, whatever its format."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms

pytest.importorskip("apache_beam")

from beam_jobs.images.image import ImageOptions, store_image
from tests.support.image_files import (
    BOX,
    JPEG,
    RAW,
    SIZE,
    bounds_of_dark,
    decoded,
    drawn,
    noise,
    oriented,
)
from tests.support.pictures import encode

MODES_OF_FORMAT = {
    "JPEG": ("L", "RGB", "CMYK"),
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "WEBP": ("RGB", "RGBA"),
    "TIFF": ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "LAB", "I;16", "I", "F"),
    "BMP": ("1", "L", "P", "RGB"),
    "GIF": ("L", "P", "RGB"),
}
GRAY = {"1", "L", "LA", "I;16", "I", "F"}


def in_mode(image: Image.Image, mode: str) -> Image.Image:
    gray = image.convert("L")
    match mode:
        case "I;16":
            return Image.fromarray(np.asarray(gray).astype(np.uint16) * 257)
        case "I" | "F":
            return Image.fromarray(np.asarray(gray).astype("int32" if mode == "I" else "float32"))
        case "P":
            return image.quantize(8)
        case "LAB":
            srgb, lab = (ImageCms.createProfile(name) for name in ("sRGB", "LAB"))
            return ImageCms.profileToProfile(image, srgb, lab, outputMode="LAB")
        case _:
            return image.convert(mode)


@pytest.mark.parametrize(
    ("format_", "mode"),
    [(format_, mode) for format_, modes in MODES_OF_FORMAT.items() for mode in modes],
)
@pytest.mark.parametrize("channels", [None, 1, 3])
def test_every_format_and_mode(format_: str, mode: str, channels: Any) -> None:
    data = encode(in_mode(drawn(), mode), format_)
    with Image.open(io.BytesIO(data)) as opened:
        gray = opened.mode in GRAY
    stored = store_image(data, [BOX], ImageOptions(channels=channels, quality=95))
    assert (stored.format, stored.height, stored.width) == ("jpeg", SIZE[1], SIZE[0])
    assert stored.channels == (channels or (1 if gray else 3))
    assert stored.pixels.mode == {1: "L", 3: "RGB"}[stored.channels]
    pixels = decoded(stored)
    assert pixels[6:10, 10:18].max() < 60
    assert pixels[20:, 30:].min() > 195
    assert stored.boxes[0] == pytest.approx((6 / 48, 4 / 32, 22 / 48, 12 / 32, "TOTAL"))


@pytest.mark.parametrize(
    ("data", "options", "kept"),
    [
        pytest.param(encode(noise(), "JPEG"), ImageOptions(), True, id="rgb"),
        pytest.param(encode(noise().convert("L"), "JPEG"), ImageOptions(), True, id="gray"),
        pytest.param(encode(noise(), "JPEG"), ImageOptions(channels=3), True, id="rgb_wanted"),
        pytest.param(
            encode(noise(), "JPEG", progressive=True), ImageOptions(), True, id="progressive"
        ),
        pytest.param(
            encode(
                noise(),
                "JPEG",
                icc_profile=ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes(),
            ),
            ImageOptions(),
            True,
            id="srgb_profile",
        ),
        pytest.param(oriented(noise(), "JPEG", 1), ImageOptions(), True, id="upright_by_tag"),
        pytest.param(
            encode(noise(), "JPEG", quality=50), ImageOptions(quality=95), True, id="low_quality"
        ),
        pytest.param(encode(noise((64, 64)), "JPEG"), ImageOptions(max_side=64), True, id="fits"),
        pytest.param(encode(noise(), "JPEG"), ImageOptions(max_side=63), False, id="too_large"),
        pytest.param(
            encode(noise(), "JPEG"),
            ImageOptions(max_side=20, full_decode=False),
            False,
            id="drafted",
        ),
        pytest.param(encode(noise(), "JPEG"), ImageOptions(channels=1), False, id="gray_wanted"),
        pytest.param(
            encode(noise().convert("L"), "JPEG"), ImageOptions(channels=3), False, id="rgb_of_gray"
        ),
        pytest.param(encode(noise().convert("CMYK"), "JPEG"), ImageOptions(), False, id="cmyk"),
        pytest.param(oriented(noise(), "JPEG", 3), ImageOptions(), False, id="turned"),
        pytest.param(encode(noise(), "PNG"), ImageOptions(), False, id="png"),
    ],
)
def test_a_jpeg_is_kept_byte_for_byte_exactly_if_nothing_changes(
    data: bytes, options: ImageOptions, kept: bool
) -> None:
    stored = store_image(data, [], options)
    assert (stored.encoded == data) is kept
    assert decoded(stored).shape == (stored.height, stored.width, stored.channels)


@pytest.mark.parametrize("options", [JPEG, RAW], ids=["jpeg", "raw"])
def test_equal_files_give_equal_bytes(options: ImageOptions) -> None:
    data = encode(noise(), "PNG")
    first, second = store_image(data, [BOX], options), store_image(data, [BOX], options)
    assert len(first.encoded) > 1000
    assert (first.encoded, first.boxes) == (second.encoded, second.boxes)


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_a_broken_color_profile_does_not_cost_the_image(format_: str) -> None:
    stored = store_image(encode(drawn(), format_, icc_profile=b"garbage" * 30), [BOX], JPEG)
    assert bounds_of_dark(decoded(stored)) == pytest.approx(stored.boxes[0][:4], abs=1 / 32)


def test_clipped_boxes_are_counted() -> None:
    stored = store_image(encode(drawn(), "PNG"), [BOX, (-1.0, 0.0, 9.0, 9.0, "b")], JPEG)
    assert stored.clipped_boxes == 1
    assert [box[4] for box in stored.boxes] == ["TOTAL", "b"]


def test_pixels_are_those_of_the_image_not_of_its_file() -> None:
    upright = store_image(encode(drawn(), "PNG"), [], JPEG)
    turned = drawn().transpose(Image.Transpose.ROTATE_90)
    for format_ in ("PNG", "TIFF", "WEBP"):
        again = store_image(oriented(turned, format_, 6), [], JPEG)
        assert again.pixels.tobytes() == upright.pixels.tobytes(), format_
        assert again.full_size == upright.full_size
