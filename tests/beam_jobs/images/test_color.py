"""Any color mode becomes what a viewer shows, on white."""

from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms

pytest.importorskip("apache_beam")

from beam_jobs.images.color import in_color

SIZE = (4, 2)
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
LAB = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()


def filled(mode: str, color: object) -> Image.Image:
    return Image.new(mode, SIZE, color)


def array(values: object, dtype: str) -> Image.Image:
    return Image.fromarray(np.full(SIZE[::-1], values, dtype))


def palette(color: tuple[int, int, int], *, transparent: bool) -> Image.Image:
    image = filled("P", 0)
    image.putpalette(color)
    if transparent:
        image.info["transparency"] = 0
    return image


def with_info(image: Image.Image, **info: object) -> Image.Image:
    image.info.update(info)
    return image


def swapped_profile() -> bytes:
    """An RGB profile that differs from sRGB: its red and its blue are swapped.

    Built from Pillow's sRGB by exchanging the tags' names, as Pillow makes no other RGB profile.
    """
    data = bytearray(SRGB)
    count = int.from_bytes(data[128:132], "big")
    for tag in range(count):
        at = 132 + 12 * tag
        name = bytes(data[at : at + 4])
        swapped = {b"rXYZ": b"bXYZ", b"bXYZ": b"rXYZ"}.get(name, name)
        data[at : at + 4] = swapped
    # Both spellings of the description, so that it no longer says sRGB.
    renamed = bytes(data).replace("sRGB".encode("utf-16-be"), "swap".encode("utf-16-be"))
    return renamed.replace(b"sRGB built-in", b"swap built-in")


@pytest.mark.parametrize(
    ("image", "mode", "pixel"),
    [
        pytest.param(filled("1", 1), "L", 255, id="1"),
        pytest.param(filled("L", 77), "L", 77, id="L"),
        pytest.param(filled("LA", (0, 0)), "L", 255, id="LA_clear_is_white"),
        pytest.param(filled("LA", (0, 51)), "L", 204, id="LA_blends"),
        pytest.param(palette((10, 20, 30), transparent=False), "RGB", (10, 20, 30), id="P"),
        pytest.param(palette((10, 20, 30), transparent=True), "RGB", (255,) * 3, id="P_clear"),
        pytest.param(filled("RGB", (1, 2, 3)), "RGB", (1, 2, 3), id="RGB"),
        pytest.param(
            with_info(filled("RGB", (1, 2, 3)), transparency=(1, 2, 3)),
            "RGB",
            (255,) * 3,
            id="RGB_with_a_transparent_color",
        ),
        pytest.param(
            with_info(filled("L", 9), transparency=9), "L", 255, id="L_with_a_transparent_gray"
        ),
        pytest.param(
            with_info(filled("RGB", (1, 2, 3)), transparency=(0x1FF, 0x200, 0x301)),
            "RGB",
            (255,) * 3,
            id="RGB_with_a_transparent_color_of_16_bits",
        ),
        pytest.param(
            with_info(array(12_345, "uint16"), transparency=12_345),
            "L",
            255,
            id="I;16_with_a_transparent_gray",
        ),
        pytest.param(filled("RGBA", (0, 255, 0, 0)), "RGB", (255,) * 3, id="RGBA_clear"),
        pytest.param(filled("RGBA", (0, 255, 0, 51)), "RGB", (204, 255, 204), id="RGBA_blends"),
        pytest.param(filled("RGBa", (0, 51, 0, 51)), "RGB", (204, 255, 204), id="RGBa_blends"),
        pytest.param(filled("RGBX", (1, 2, 3, 0)), "RGB", (1, 2, 3), id="RGBX"),
        pytest.param(filled("CMYK", (0, 255, 255, 0)), "RGB", (255, 0, 0), id="CMYK"),
        pytest.param(filled("YCbCr", (255, 128, 128)), "RGB", (255,) * 3, id="YCbCr"),
        pytest.param(filled("LAB", (255, 128, 128)), "RGB", (255,) * 3, id="LAB"),
        pytest.param(array(65535 // 5, "uint16"), "L", 51, id="I;16"),
        pytest.param(array(65535 // 5, ">u2"), "L", 51, id="I;16B"),
        pytest.param(array(51, "int32"), "L", 51, id="I_of_8_bits"),
        pytest.param(array(0, "int32"), "L", 0, id="I_black"),
        pytest.param(array(-5, "int32"), "L", 0, id="I_negative_is_black"),
        pytest.param(array(0.2, "float32"), "L", 51, id="F_up_to_1"),
        pytest.param(array(51.0, "float32"), "L", 51, id="F_up_to_255"),
    ],
)
def test_every_mode(image: Image.Image, mode: str, pixel: int | tuple[int, ...]) -> None:
    converted = in_color(image, None, None)
    assert converted.mode == mode
    assert converted.size == SIZE
    assert converted.getpixel((0, 0)) == pytest.approx(pixel, abs=1)


@pytest.mark.parametrize(
    "mode",
    [
        "1",
        "L",
        "LA",
        "P",
        "PA",
        "RGB",
        "RGBA",
        "RGBX",
        "CMYK",
        "YCbCr",
        "LAB",
        "HSV",
        "I",
        "I;16",
        "F",
    ],
)
@pytest.mark.parametrize(("channels", "wanted"), [(1, "L"), (3, "RGB")])
def test_every_mode_in_the_channels_asked_for(mode: str, channels: int, wanted: str) -> None:
    assert in_color(Image.new(mode, SIZE), channels, None).mode == wanted


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_an_image_that_is_right_already_is_left_alone(mode: str) -> None:
    image = filled(mode, "white")
    assert in_color(image, None, None) is image
    assert in_color(image, None, SRGB) is image


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        pytest.param([0, 65535, 32768, 256], "uint16", [0, 255, 128, 1], id="uint16"),
        pytest.param([0, 1, 128, 129], "uint16", [0, 0, 0, 1], id="uint16_rounded"),
        pytest.param([0, 65535, 32768, 256], "int32", [0, 255, 128, 1], id="int32"),
        pytest.param([0, 256, 257, 512], "int32", [0, 1, 1, 2], id="int32_just_above_8_bits"),
        pytest.param([0, 10**6, 5 * 10**5], "int32", [0, 255, 128], id="int32_of_its_own_range"),
        pytest.param([0.0, 65535.0, 257.0], "float32", [0, 255, 1], id="float32"),
        pytest.param([0.0, 1.0, 0.2], "float32", [0, 255, 51], id="float32_up_to_1"),
    ],
)
def test_deep_grays_are_scaled_not_clipped(
    values: list[float], dtype: str, expected: list[int]
) -> None:
    image = Image.fromarray(np.array([values], dtype))
    assert np.asarray(in_color(image, None, None)).tolist() == [expected]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf], ids=["nan", "inf", "minus_inf"])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_float_pixels_that_are_no_numbers_do_not_spoil_the_others(bad: float) -> None:
    values = np.array([[1.0, 0.0, 0.2, bad]], np.float32)
    converted = np.asarray(in_color(Image.fromarray(values), None, None))
    assert converted[0, :3].tolist() == [255, 0, 51]


@pytest.mark.parametrize("mode", ["L", "I;16", "I", "F", "LA", "RGBA", "P"])
def test_large_images_are_converted_band_by_band(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = np.random.default_rng(0).integers(0, 256, (11, 7), np.uint8)
    gray = Image.fromarray(levels)
    image = {
        "I;16": lambda: Image.fromarray(levels.astype(np.uint16) * 201),
        "I": lambda: Image.fromarray(levels.astype(np.int32) * 999),
        "F": lambda: Image.fromarray(levels.astype(np.float32) * 200.5),
        "RGBA": lambda: Image.merge("RGBA", [gray, gray, gray, gray.rotate(180)]),
        "P": lambda: with_info(gray.convert("RGB").quantize(8), transparency=2),
    }.get(mode, lambda: gray.convert(mode))()
    whole = in_color(image, None, None)
    monkeypatch.setattr("beam_jobs.images.color._BAND_PIXELS", 3 * 7)
    banded = in_color(image, None, None)
    assert (banded.mode, banded.size) == (whole.mode, whole.size)
    assert banded.tobytes() == whole.tobytes()
    assert len(set(banded.tobytes())) > 4


def test_a_profile_is_converted_to_srgb() -> None:
    converted = in_color(filled("RGB", (255, 0, 0)), None, swapped_profile())
    red, _, blue = converted.getpixel((0, 0))
    assert converted.mode == "RGB"
    assert blue > 200 > 50 > red


def test_the_test_profile_differs_from_srgb_only_in_what_it_should() -> None:
    converted = in_color(filled("RGB", (255, 255, 255)), None, swapped_profile())
    assert converted.getpixel((0, 0)) == pytest.approx((255, 255, 255), abs=2)


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(b"garbage", id="garbage"),
        pytest.param(b"\x00" * 200, id="zeros"),
        pytest.param(SRGB[:200], id="cut_off"),
        pytest.param(LAB, id="of_another_color_space"),
        pytest.param(b"", id="empty"),
        pytest.param("garbage", id="text_from_a_broken_tiff_tag"),
    ],
)
@pytest.mark.parametrize("mode", ["RGB", "CMYK"])
def test_a_broken_profile_is_ignored(profile: Any, mode: str) -> None:
    image = filled(mode, (0, 255, 0) if mode == "RGB" else (255, 0, 255, 0))
    assert in_color(image, None, profile).getpixel((0, 0)) == (0, 255, 0)


def test_a_profile_does_not_matter_to_a_gray_image() -> None:
    image = filled("L", 77)
    assert in_color(image, None, swapped_profile()) is image
