"""An image that would cost too much is refused before it is decoded, by what its header says."""

import gc
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

pytest.importorskip("apache_beam")

from beam_jobs.images.decode_limits import memory_bytes
from beam_jobs.images.image import ImageOptions, store_image
from beam_jobs.rejection import Reason, RejectionError
from tests.support.pictures import encode

SIZE = (64, 48)
PIXELS = SIZE[0] * SIZE[1]


def paper(size: tuple[int, int] = SIZE, mode: str = "RGB") -> Image.Image:
    image = Image.new("RGB", size, "white")
    image.paste((30, 20, 10), (8, 8, size[0] // 2, size[1] // 2))
    if mode in ("I;16", "I", "F"):
        dtype = {"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode]
        return Image.fromarray(np.asarray(image.convert("L")).astype(dtype))
    return image.quantize(8) if mode == "P" else image.convert(mode)


def with_repeated_scan(data: bytes, times: int) -> bytes:
    """A progressive JPEG file whose last scan comes again and again."""
    start = data.rindex(b"\xff\xda")
    return data[:-2] + data[start:-2] * times + data[-2:]


def refusal(data: bytes, **options: Any) -> RejectionError:
    with pytest.raises(RejectionError) as caught:
        store_image(data, [], ImageOptions(**options))
    return caught.value


def test_repeated_scans_are_refused_undecoded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = with_repeated_scan(encode(paper(), "JPEG", progressive=True), 490)
    monkeypatch.setattr(Image.Image, "load", None)
    error = refusal(data, max_pixels=30 * PIXELS)
    assert error.reason == Reason.TOO_MANY_SCANS
    assert error.message == (
        "500 scans of 64×48 pixels; at this size 480 are allowed: encode the image anew, or raise "
        "--max-pixels if it is genuine"
    )


def test_repeated_scans_of_a_sequential_file_are_refused() -> None:
    gray = encode(paper(mode="L"), "JPEG")
    start = gray.rindex(b"\xff\xda")
    rgb = bytearray(encode(paper(), "JPEG", subsampling=0))
    # One component a scan: the file's own tables, the scan of a gray file for component 1.
    head = bytes(rgb[: rgb.rindex(b"\xff\xda")])
    assert refusal(head + gray[start:-2] * 17 + b"\xff\xd9", max_pixels=PIXELS).reason == (
        Reason.TOO_MANY_SCANS
    )


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(encode(paper(), "JPEG"), id="sequential"),
        pytest.param(encode(paper(mode="L"), "JPEG"), id="gray"),
        pytest.param(encode(paper(), "JPEG", progressive=True), id="progressive"),
        pytest.param(encode(paper(), "JPEG", comment=b"\xff\xda" * 40), id="comment"),
        pytest.param(encode(paper(), "JPEG") + b"\xff\xda" * 40, id="behind_the_only_scan"),
    ],
)
def test_usual_numbers_of_scans_are_accepted_at_the_largest_size(data: bytes) -> None:
    assert store_image(data, [], ImageOptions(max_pixels=PIXELS)).full_size == SIZE


def test_an_image_that_needs_too_much_memory_is_refused_undecoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = encode(Image.new("L", (2000, 1000)), "PNG")
    monkeypatch.setattr(Image.Image, "load", None)
    error = refusal(data, max_memory_bytes=25 << 20)
    assert error.reason == Reason.TOO_MUCH_MEMORY
    assert error.message == (
        "2000×1000 pixels may take 26 MiB to prepare, 25 are allowed: raise --max-image-memory-mb "
        "if the image is genuine"
    )


def peak_bytes() -> int:
    """Most memory that this process has held since the last reset."""
    status = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in status if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def swapped_profile() -> bytes:
    from tests.beam_jobs.images.test_color import swapped_profile as profile

    return profile()


@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
@pytest.mark.parametrize(
    ("format_", "mode", "options"),
    [
        pytest.param("JPEG", "RGB", {"progressive": True, "subsampling": 0}, id="progressive"),
        pytest.param("JPEG", "RGB", {"icc_profile": swapped_profile()}, id="profile"),
        pytest.param("JPEG", "CMYK", {}, id="cmyk"),
        pytest.param("PNG", "RGB", {"transparency": (1, 2, 3)}, id="transparent_color"),
        pytest.param("PNG", "RGBA", {"icc_profile": swapped_profile()}, id="rgba"),
        pytest.param("PNG", "LA", {}, id="la"),
        pytest.param("PNG", "P", {"transparency": 1}, id="palette"),
        pytest.param("PNG", "I;16", {}, id="16-bit"),
        pytest.param("TIFF", "I", {}, id="32-bit"),
        pytest.param("TIFF", "F", {}, id="float"),
        pytest.param("TIFF", "RGBA", {"compression": "tiff_deflate"}, id="tiff"),
        pytest.param("WEBP", "RGBA", {"method": 0}, id="webp"),
        pytest.param("GIF", "P", {}, id="gif"),
    ],
)
def test_no_image_takes_more_memory_than_was_estimated(
    format_: str, mode: str, options: dict[str, Any], turned: bool
) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6 if turned else 1
    data = encode(paper((2500, 2000), mode), format_, exif=exif, **options)
    with Image.open(io.BytesIO(data)) as image:
        estimate = memory_bytes(image)
    assert estimate > 50e6
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = peak_bytes()
    store_image(data, [], ImageOptions(max_side=65_500))
    spare = 16 << 20  # bands, and what the allocator keeps
    assert peak_bytes() - before < estimate + spare


def tiff(*pages: tuple[Image.Image, int]) -> bytes:
    """A TIFF file of (image, NewSubfileType)."""
    buffer = io.BytesIO()
    with TiffImagePlugin.AppendingTiffWriter(buffer, new=True) as writer:
        for image, subfile_type in pages:
            image.save(writer, "TIFF", tiffinfo={254: subfile_type})
            writer.newFrame()
    return buffer.getvalue()


def test_a_tiff_file_of_several_pages_is_refused() -> None:
    error = refusal(tiff((paper(), 0), (paper((30, 30)), 1), (paper(), 2)))
    assert error.reason == Reason.MANY_PAGES
    assert error.message == (
        "the TIFF file has more than one page: save each page to a file of its own, with a row of "
        "its own"
    )


def test_directories_without_end_are_refused() -> None:
    assert refusal(tiff((paper(), 0), *[(paper((16, 16)), 1)] * 20)).reason == Reason.MANY_PAGES


@pytest.mark.parametrize("subfile_type", [1, 4], ids=["thumbnail", "mask"])
def test_a_page_with_a_thumbnail_or_a_mask_is_one_page(subfile_type: int) -> None:
    data = tiff((paper(), 0), (paper((30, 30)), subfile_type))
    assert store_image(data, [], ImageOptions()).full_size == SIZE
