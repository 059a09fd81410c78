"""An image file becomes what the record holds, or a rejection with a reason; nothing else."""

import io
import re
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms

pytest.importorskip("apache_beam")

from beam_jobs.images.image import FORMATS, ImageOptions, StoredImage, store_image
from beam_jobs.rejection import Reason, RejectionError
from beam_jobs.sources.row import Box

ORIENTATION = 0x0112
SIZE = (48, 32)
DARK = (6, 4, 22, 12)  # of the stored image
BOX: Box = (6.0, 4.0, 22.0, 12.0, "TOTAL")
JPEG = ImageOptions(quality=95)
RAW = ImageOptions(encoding="raw", raw_size=(64, 32), channels=3)
MODES_OF_FORMAT = {
    "JPEG": ("L", "RGB", "CMYK"),
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "WEBP": ("RGB", "RGBA"),
    "TIFF": ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "LAB", "I;16", "I", "F"),
    "BMP": ("1", "L", "P", "RGB"),
    "GIF": ("L", "P", "RGB"),
}
GRAY = {"1", "L", "LA", "I;16", "I", "F"}


def encoded(image: Image.Image, format_: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format_, **options)
    return buffer.getvalue()


def drawn(size: tuple[int, int] = SIZE, dark: Sequence[int] = DARK) -> Image.Image:
    image = Image.new("RGB", size, "white")
    image.paste("black", tuple(dark))
    return image


def noise(size: tuple[int, int] = (64, 48), seed: int = 0) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    return Image.fromarray(values)


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


def oriented(image: Image.Image, format_: str, orientation: int) -> bytes:
    lossless = {"JPEG": {"quality": 95, "subsampling": 0}, "WEBP": {"lossless": True}}
    if format_ == "TIFF":
        return encoded(image, format_, tiffinfo={ORIENTATION: orientation})
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return encoded(image, format_, exif=exif, **lossless.get(format_, {}))


def decoded(stored: StoredImage) -> np.ndarray:
    """Pixels that a reader of the record sees, [height, width, channels]."""
    shape = (stored.height, stored.width, stored.channels)
    if stored.format == "raw":
        return np.frombuffer(stored.encoded, np.uint8).reshape(shape)
    with Image.open(io.BytesIO(stored.encoded)) as image:
        assert image.format == "JPEG"
        return np.asarray(image).reshape(shape)


def bounds_of_dark(pixels: np.ndarray) -> tuple[float, ...]:
    """xmin, ymin, xmax, ymax of the dark pixels, as fractions of the image."""
    rows, columns = np.nonzero(pixels.min(axis=2) < 128)
    height, width = pixels.shape[:2]
    return (
        columns.min() / width,
        rows.min() / height,
        (columns.max() + 1) / width,
        (rows.max() + 1) / height,
    )


@pytest.mark.parametrize(
    ("format_", "mode"),
    [(format_, mode) for format_, modes in MODES_OF_FORMAT.items() for mode in modes],
)
@pytest.mark.parametrize("channels", [None, 1, 3])
def test_every_format_and_mode(format_: str, mode: str, channels: Any) -> None:
    data = encoded(in_mode(drawn(), mode), format_)
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


@pytest.mark.parametrize(
    ("size", "max_side", "expected"),
    [
        pytest.param((640, 480), 640, (640, 480), id="fits"),
        pytest.param((640, 480), 320, (320, 240), id="half"),
        pytest.param((480, 640), 100, (75, 100), id="upright"),
        pytest.param((1000, 700), 120, (120, 84), id="an_eighth"),
        pytest.param((333, 777), 100, (43, 100), id="rounded"),
        pytest.param((1999, 16), 30, (30, 1), id="never_zero"),
    ],
)
@pytest.mark.parametrize("format_", ["JPEG", "PNG"])
def test_larger_images_are_scaled_down(
    format_: str, size: tuple[int, int], max_side: int, expected: tuple[int, int]
) -> None:
    box: Box = (0.0, 0.0, size[0] / 2, size[1] / 2, "a")
    stored = store_image(
        encoded(Image.new("RGB", size, "red"), format_), [box], ImageOptions(max_side=max_side)
    )
    assert (stored.width, stored.height) == expected
    assert decoded(stored).shape == (*expected[::-1], 3)
    assert stored.full_size == size
    assert stored.boxes[0][:4] == (0.0, 0.0, 0.5, 0.5)


def test_a_large_photo_without_its_exif_data_is_the_same_photo() -> None:
    photo = drawn((200, 100))
    plain = encoded(photo, "JPEG", quality=95, subsampling=0)
    files = [plain, oriented(photo, "JPEG", 1), oriented(photo, "JPEG", 3)]
    same, again, turned = (store_image(data, [], ImageOptions(max_side=50)) for data in files)
    assert same.pixels.size < same.full_size  # decoded at a reduced scale
    assert files[0] != files[1]
    assert same.pixels_hash == again.pixels_hash != turned.pixels_hash


def test_a_turned_image_is_scaled_by_its_longer_side() -> None:
    data = oriented(drawn((200, 100)), "JPEG", 6)
    stored = store_image(data, [], ImageOptions(max_side=50))
    assert (stored.width, stored.height) == (25, 50)
    assert stored.full_size == (100, 200)


@pytest.mark.parametrize(
    ("data", "options", "kept"),
    [
        pytest.param(encoded(noise(), "JPEG"), ImageOptions(), True, id="rgb"),
        pytest.param(encoded(noise().convert("L"), "JPEG"), ImageOptions(), True, id="gray"),
        pytest.param(encoded(noise(), "JPEG"), ImageOptions(channels=3), True, id="rgb_wanted"),
        pytest.param(
            encoded(noise(), "JPEG", progressive=True), ImageOptions(), True, id="progressive"
        ),
        pytest.param(
            encoded(
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
            encoded(noise(), "JPEG", quality=50), ImageOptions(quality=95), True, id="low_quality"
        ),
        pytest.param(encoded(noise((64, 64)), "JPEG"), ImageOptions(max_side=64), True, id="fits"),
        pytest.param(encoded(noise(), "JPEG"), ImageOptions(max_side=63), False, id="too_large"),
        pytest.param(encoded(noise(), "JPEG"), ImageOptions(max_side=20), False, id="drafted"),
        pytest.param(encoded(noise(), "JPEG"), ImageOptions(channels=1), False, id="gray_wanted"),
        pytest.param(
            encoded(noise().convert("L"), "JPEG"), ImageOptions(channels=3), False, id="rgb_of_gray"
        ),
        pytest.param(encoded(noise().convert("CMYK"), "JPEG"), ImageOptions(), False, id="cmyk"),
        pytest.param(oriented(noise(), "JPEG", 3), ImageOptions(), False, id="turned"),
        pytest.param(encoded(noise(), "PNG"), ImageOptions(), False, id="png"),
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
    data = encoded(noise(), "PNG")
    first, second = store_image(data, [BOX], options), store_image(data, [BOX], options)
    assert len(first.encoded) > 1000
    assert (first.encoded, first.boxes) == (second.encoded, second.boxes)


@pytest.mark.parametrize("size", [(48, 32), (32, 48), (64, 32), (500, 100), (100, 500)])
def test_raw_images_are_padded_and_their_boxes_moved(size: tuple[int, int]) -> None:
    width, height = size
    dark = (0, 0, width // 2, height // 2)
    stored = store_image(
        encoded(drawn(size, dark), "PNG"),
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
    stored = store_image(encoded(drawn(), "PNG"), [BOX], options)
    assert (stored.height, stored.width, stored.channels) == (64, 96, channels)
    assert len(stored.encoded) == 64 * 96 * channels
    assert stored.boxes[0][:4] == (6 / 48, 4 / 32, 22 / 48, 12 / 32)
    assert bounds_of_dark(decoded(stored)) == pytest.approx(stored.boxes[0][:4], abs=1 / 64)


@pytest.mark.parametrize("size", [(16, 9000), (9000, 16)], ids=["tall", "wide"])
@pytest.mark.parametrize("fit", ["pad", "stretch"])
def test_a_raw_image_of_extreme_shape_keeps_a_pixel(fit: Any, size: tuple[int, int]) -> None:
    options = ImageOptions(encoding="raw", raw_size=(256, 256), channels=1, fit=fit)
    stored = store_image(encoded(Image.new("L", size, 0), "PNG"), [], options)
    assert (stored.height, stored.width) == (256, 256)
    assert decoded(stored).min() < 50


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_jpeg_of_extreme_shape_keeps_a_pixel(mode: str) -> None:
    data = encoded(Image.new(mode, (16, 33_000)), "JPEG")
    stored = store_image(data, [], ImageOptions())
    assert (stored.width, stored.height) == (1, 1024)


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_a_broken_color_profile_does_not_cost_the_image(format_: str) -> None:
    stored = store_image(encoded(drawn(), format_, icc_profile=b"garbage" * 30), [BOX], JPEG)
    assert bounds_of_dark(decoded(stored)) == pytest.approx(stored.boxes[0][:4], abs=1 / 32)


def test_clipped_boxes_are_counted() -> None:
    stored = store_image(encoded(drawn(), "PNG"), [BOX, (-1.0, 0.0, 9.0, 9.0, "b")], JPEG)
    assert stored.clipped_boxes == 1
    assert [box[4] for box in stored.boxes] == ["TOTAL", "b"]


def test_pixels_are_those_of_the_image_not_of_its_file() -> None:
    upright = store_image(encoded(drawn(), "PNG"), [], JPEG)
    turned = drawn().transpose(Image.Transpose.ROTATE_90)
    for format_ in ("PNG", "TIFF", "WEBP"):
        again = store_image(oriented(turned, format_, 6), [], JPEG)
        assert again.pixels.tobytes() == upright.pixels.tobytes(), format_
        assert again.full_size == upright.full_size


@pytest.mark.parametrize(
    ("data", "reason", "message"),
    [
        pytest.param(b"", Reason.FILE_EMPTY, "the file is empty", id="empty"),
        pytest.param(
            b"%PDF-1.7 and so on",
            Reason.NOT_AN_IMAGE,
            "no image format known to Pillow; starts with b'%PDF-1.7'",
            id="pdf",
        ),
        pytest.param(
            b"\xff",
            Reason.NOT_AN_IMAGE,
            r"no image format known to Pillow; starts with b'\xff'",
            id="one_byte",
        ),
        pytest.param(
            encoded(drawn(), "PPM"),
            Reason.UNSUPPORTED_FORMAT,
            f"format PPM is not accepted: convert it to one of {', '.join(FORMATS)}",
            id="ppm",
        ),
        pytest.param(
            encoded(drawn(), "ICO", sizes=[(32, 32)]),
            Reason.UNSUPPORTED_FORMAT,
            f"format ICO is not accepted: convert it to one of {', '.join(FORMATS)}",
            id="ico",
        ),
        pytest.param(
            encoded(drawn((100, 15), (1, 1, 9, 9)), "PNG"),
            Reason.TOO_SMALL,
            "100×15 pixels; the shorter side must be at least 16",
            id="too_small",
        ),
        pytest.param(
            encoded(Image.new("1", (1001, 1000)), "PNG"),
            Reason.TOO_MANY_PIXELS,
            "1001×1000 pixels are more than the 1000000 allowed: raise --max-pixels if the image "
            "is genuine",
            id="too_many_pixels",
        ),
    ],
)
def test_refusals(data: bytes, reason: Reason, message: str) -> None:
    with pytest.raises(RejectionError) as caught:
        store_image(data, [], ImageOptions(max_pixels=1_000_000))
    assert (caught.value.reason, caught.value.message) == (reason, message)


def test_a_decompression_bomb_is_refused_undecoded() -> None:
    def chunk(name: bytes, data: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + crc

    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    with pytest.raises(RejectionError, match="100000×100000 pixels are more") as caught:
        store_image(data, [], ImageOptions())
    assert caught.value.reason == Reason.TOO_MANY_PIXELS


def test_a_box_outside_the_image_refuses_it() -> None:
    with pytest.raises(RejectionError, match="has no area inside the image of 48×32") as caught:
        store_image(encoded(drawn(), "PNG"), [(48.0, 0.0, 60.0, 9.0, "x")], JPEG)
    assert caught.value.reason == Reason.BOX_OUTSIDE


def test_heic_without_its_decoder_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beam_jobs.images.image.pillow_heif", None)
    with pytest.raises(RejectionError) as caught:
        store_image(b"\0\0\0\x1cftypheic, all the rest is missing", [], JPEG)
    assert caught.value.reason == Reason.NOT_AN_IMAGE
    assert caught.value.message.endswith(
        "ftyp': for HEIC, install tillroll[heic] wherever the job's workers run"
    )


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF"])
@pytest.mark.parametrize("part", [0.6, 0.98])
def test_a_truncated_file_is_refused(format_: str, part: float) -> None:
    data = encoded(noise(), format_)
    with pytest.raises(RejectionError) as caught:
        store_image(data[: int(part * len(data))], [], JPEG)
    assert caught.value.reason in {Reason.TRUNCATED, Reason.CORRUPT, Reason.NOT_AN_IMAGE}
    if format_ in ("JPEG", "PNG"):
        assert caught.value.reason == Reason.TRUNCATED
        assert "decoding failed: OSError('" in caught.value.message
        assert "truncated" in caught.value.message


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF"])
@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_a_damaged_file_is_stored_or_refused_and_never_crashes(
    format_: str, data: st.DataObject
) -> None:
    damaged = bytearray(DAMAGED[format_])
    for _ in range(data.draw(st.integers(1, 4))):
        head = data.draw(st.booleans())
        place = data.draw(st.integers(0, min(200, len(damaged) - 1) if head else len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    try:
        stored = store_image(bytes(damaged), [], ImageOptions(max_pixels=1_000_000))
    except RejectionError:
        return
    assert decoded(stored).size == stored.height * stored.width * stored.channels


DAMAGED = {
    format_: oriented(noise((40, 30)), format_, 6) for format_ in ("JPEG", "PNG", "WEBP", "TIFF")
} | {format_: encoded(noise((40, 30)), format_) for format_ in ("BMP", "GIF")}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_side": 15}, "max_side must be 16 to 65500, got 15"),
        ({"max_side": 65_501}, "max_side must be 16 to 65500, got 65501"),
        ({"quality": 0}, "quality must be 1 to 95, got 0"),
        ({"quality": 96}, "quality must be 1 to 95, got 96"),
        ({"max_pixels": 0}, f"max_pixels must be 1 to {2**31}, got 0"),
        ({"min_side": 0}, "min_side must be 1 to 65500, got 0"),
        ({"max_input_bytes": 0}, f"max_input_bytes must be 1 to {2**30}, got 0"),
        (
            {"max_memory_bytes": 2**20 - 1},
            f"max_memory_bytes must be {2**20} to {2**40}, got {2**20 - 1}",
        ),
        ({"max_seconds": 0}, "max_seconds must be 1 to 86400, got 0"),
        (
            {"raw_size": (256, 15)},
            "raw_size must be sides of 16 to 16384 pixels, got (256, 15)",
        ),
        ({"encoding": "raw"}, "raw images need one fixed size: set channels to 1 or 3"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_options_that_are_not_allowed(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        ImageOptions(**options)


@pytest.mark.parametrize(
    ("options", "typical_bytes"),
    [
        pytest.param(ImageOptions(max_side=1000), 100_000, id="jpeg"),
        pytest.param(RAW, 64 * 32 * 3, id="raw"),
    ],
)
def test_typical_bytes(options: ImageOptions, typical_bytes: int) -> None:
    assert options.typical_bytes == typical_bytes
