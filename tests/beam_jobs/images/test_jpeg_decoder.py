"""JPEG files are decoded as Pillow decodes them, but for damage, of which Pillow says nothing."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("apache_beam")

from beam_jobs.images.image import ImageOptions, StoredImage, store_image
from beam_jobs.images.image_file import image_file
from beam_jobs.images.jpeg_decoder import END_MARKER, SCALES, decode_jpeg, decodes
from beam_jobs.layouts.image import image_descriptors
from beam_jobs.near_duplicates.perceptual_hash import perceptual_hash
from beam_jobs.rejection import Reason, RejectionError
from schemas.jpeg import PROGRESSIVE, SOS, segments
from tests.support.image_files import decoded
from tests.support.pictures import encode, picture
from tests.support.rare_images import lossless_jpeg

SROIE = Path(__file__).parents[4] / "shared/data/sroie/img"
PAGE = Image.fromarray(picture(371, 203))
OTHER = Image.fromarray(255 - picture(371, 203))
KINDS: dict[str, bytes] = {
    "baseline": encode(PAGE, "JPEG"),
    "4:4:4": encode(PAGE, "JPEG", subsampling=0),
    "4:2:2": encode(PAGE, "JPEG", subsampling=1),
    "optimized": encode(PAGE, "JPEG", optimize=True),
    "progressive": encode(PAGE, "JPEG", progressive=True),
    "restart": encode(PAGE, "JPEG", restart_marker_rows=1),
    "RGB": encode(PAGE, "JPEG", keep_rgb=True),
    "gray": encode(PAGE.convert("L"), "JPEG"),
    "CMYK": encode(PAGE.convert("CMYK"), "JPEG"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("gray", [False, True], ids=["", "gray_wanted"])
def test_pixels_are_those_of_pillow(kind: str, scale: int, gray: bool) -> None:
    data = KINDS[kind]
    with Image.open(io.BytesIO(data)) as image:
        mode = "L" if gray and image.mode == "RGB" else image.mode
        image.draft(mode, (image.width // scale, image.height // scale))
        assert decodes(data, image.mode)
        pixels = decode_jpeg(data, mode, scale=scale)
        assert (pixels.mode, pixels.size) == (image.mode, image.size)
        assert pixels.tobytes() == image.tobytes()


def scan_start(data: bytes) -> int:
    return data.rindex(b"\xff\xda") + 20


def with_zeros(data: bytes, size: int) -> bytes:
    middle = (scan_start(data) + len(data)) // 2
    return data[:middle] + bytes(size) + data[middle + size :]


def ends_in_the_middle(data: bytes) -> bytes:
    return data[: (scan_start(data) + len(data)) // 2] + b"\xff\xd9"


DAMAGES = {
    "zeros": lambda data: with_zeros(data, len(data) - (scan_start(data) + len(data)) // 2 - 2),
    "some_zeros": lambda data: with_zeros(data, 512),
    "end_marker_too_early": ends_in_the_middle,
    "tail_of_another": lambda data: (
        data[: len(data) // 2] + encode(OTHER, "JPEG", quality=95)[len(data) // 3 :]
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "progressive"])
def test_damaged_data_are_refused(kind: str, damage: str) -> None:
    data = DAMAGES[damage](KINDS[kind])
    with Image.open(io.BytesIO(data)) as image:
        image.load()  # as if it were good
    for max_side in (1024, 100):
        options = ImageOptions(max_side=max_side)
        with pytest.raises(RejectionError, match="decoding failed: Corrupt JPEG data: ") as caught:
            store_image(data, [], options)
        assert caught.value.reason == Reason.CORRUPT
        with pytest.raises(RejectionError, match="decoding failed: Corrupt JPEG data: "):
            image_file(data, options, large=never)


def never(*_: object) -> StoredImage:
    raise AssertionError("the image is small")


def test_a_progressive_file_that_ends_within_a_scan_is_refused() -> None:
    data = ends_in_the_middle(KINDS["progressive"])
    with pytest.raises(RejectionError, match="Corrupt JPEG data: premature end of data segment"):
        store_image(data, [], ImageOptions())


@pytest.mark.parametrize("page", [PAGE, PAGE.convert("L"), PAGE.convert("CMYK")])
def test_a_progressive_file_that_ends_between_scans_is_refused(page: Image.Image) -> None:
    """Its end marker may be there: a decoder finds nothing wrong, and the image is blurred."""
    data = encode(page, "JPEG", progressive=True)
    scans = [segment.offset for segment in segments(data) if segment.marker == SOS]
    assert len(scans) > 5
    assert store_image(data, [], ImageOptions()).encoded
    for scan in scans[1:]:
        for end in (b"", END_MARKER):
            with pytest.raises(RejectionError, match="the last scans of") as caught:
                store_image(data[:scan] + end, [], ImageOptions())
            assert caught.value.reason == Reason.TRUNCATED


@pytest.mark.parametrize("marker", [SOS, 0xDB], ids=["scan", "quantization"])
def test_a_progressive_file_that_lacks_a_part_is_refused(marker: int) -> None:
    """Libjpeg gives up, and simplejpeg would return memory as it found it."""
    data = KINDS["progressive"]
    parts = [part for part in segments(data) if part.marker == marker]
    assert len(parts) >= 2
    for part in parts:
        with pytest.raises(RejectionError):
            store_image(data[: part.offset] + data[part.end :], [], ImageOptions())


def test_a_progressive_file_may_leave_out_color_that_is_zero() -> None:
    data = encode(PAGE.convert("L").convert("RGB"), "JPEG", progressive=True, subsampling=0)
    (frame,) = (segment for segment in segments(data) if segment.marker == PROGRESSIVE)
    color = frame.header[9::3]
    scans = [segment for segment in segments(data) if segment.marker == SOS]
    left_out = [scan for scan in scans if scan.header[0] == 1 and scan.header[1] in color]
    assert len(left_out) == 4  # two for each color, but for their mean
    smaller = data
    for scan in reversed(left_out):
        smaller = smaller[: scan.offset] + smaller[scan.end :]
    whole, rest = (store_image(file, [], ImageOptions()).pixels for file in (data, smaller))
    assert whole is not None
    assert rest is not None
    assert whole.tobytes() == rest.tobytes()


def test_a_file_that_ends_early_is_truncated() -> None:
    data = KINDS["baseline"]
    with pytest.raises(RejectionError) as caught:
        store_image(data[: len(data) // 2], [], ImageOptions())
    assert caught.value.reason == Reason.TRUNCATED


def with_jfif_version(data: bytes, major: int) -> bytes:
    place = data.index(b"JFIF\0") + 5
    return data[:place] + bytes([major]) + data[place + 1 :]


def with_bytes_before_its_end(data: bytes, count: int) -> bytes:
    return data[:-2] + bytes(count) + data[-2:]


def with_odd_scan(data: bytes) -> bytes:
    """Says that the scan has one coefficient, as libjpeg warns of, and ignores."""
    place = data.rindex(b"\xff\xda") + 11
    assert data[place : place + 3] == b"\x00\x3f\x00"
    return data[:place] + b"\x00\x00\x00" + data[place + 3 :]


def with_bad_icc(data: bytes) -> bytes:
    """Says that the first of no profiles follows."""
    return data[:20] + b"\xff\xe2\x00\x10ICC_PROFILE\0\x00\x00" + data[20:]


@pytest.mark.parametrize("harm", [with_zeros, lambda data, _: ends_in_the_middle(data)])
@pytest.mark.parametrize(
    "oddity", [lambda data: with_jfif_version(data, 9), with_odd_scan, with_bad_icc]
)
def test_an_oddity_hides_no_damage(
    oddity: Callable[[bytes], bytes], harm: Callable[[bytes, int], bytes]
) -> None:
    """Libjpeg tells the first thing that is odd, and no other."""
    data = oddity(KINDS["baseline"])
    stored = store_image(data, [], ImageOptions())
    assert stored.pixels is not None
    assert stored.pixels.tobytes() == decode_jpeg(KINDS["baseline"], "RGB").tobytes()
    with pytest.raises(RejectionError):
        store_image(harm(data, 60), [], ImageOptions())


@pytest.mark.parametrize(
    ("data", "same"),
    [
        pytest.param(with_bytes_before_its_end(KINDS["baseline"], 33), "baseline", id="33_bytes"),
        pytest.param(with_jfif_version(KINDS["baseline"], 9), "baseline", id="jfif_version"),
        pytest.param(KINDS["progressive"] + b"\0more" * 99, "progressive", id="rubbish_behind"),
        pytest.param(KINDS["restart"][:-2], "restart", id="no_end_marker"),
        pytest.param(
            encode(PAGE, "MPO", save_all=True, append_images=[OTHER]), "baseline", id="mpo"
        ),
    ],
)
def test_oddities_that_harm_no_pixel_are_accepted(data: bytes, same: str) -> None:
    stored = store_image(data, [], ImageOptions())
    assert stored.pixels is not None
    assert stored.pixels.tobytes() == decode_jpeg(KINDS[same], "RGB").tobytes()
    # A model is given the same.
    assert image_file(data, ImageOptions(), large=never) == stored.encoded


def test_more_bytes_before_the_end_are_pixels_that_were_lost() -> None:
    with pytest.raises(RejectionError, match=r"8\d extraneous bytes before"):
        store_image(with_bytes_before_its_end(KINDS["baseline"], 90), [], ImageOptions())


@pytest.mark.parametrize("options", [{}, {"channels": 1}, {"max_side": 64}, {"max_side": 16}])
def test_a_lossless_frame_is_never_scaled_as_it_is_decoded(options: dict[str, Any]) -> None:
    """It would be written beyond the memory of the smaller image, which ends the process."""
    page = picture(301, 203)[..., 0]
    for _ in range(20):
        stored = store_image(lossless_jpeg(page), [], ImageOptions(**options))
        assert stored.pixels is not None
        assert np.array_equal(np.asarray(stored.pixels), page)
    assert max(decoded(stored).shape) == min(301, options.get("max_side", 301))


def test_an_image_that_is_described_is_not_scaled_if_its_frame_is_lossless() -> None:
    page = picture(2801, 303)[..., 0]
    for _ in range(5):
        image = Image.open(io.BytesIO(lossless_jpeg(page)))
        assert perceptual_hash(image).any()
        image_descriptors([Image.open(io.BytesIO(lossless_jpeg(page)))])


@pytest.mark.skipif(not SROIE.is_dir(), reason="needs real receipts in ../shared/data/sroie")
def test_no_real_receipt_is_refused() -> None:
    files = [*sorted(SROIE.glob("*.jpg"))[::8], SROIE / "427.jpg"]  # with 33 bytes before its end
    assert len(files) > 20
    for path in files:
        assert store_image(path.read_bytes(), [], ImageOptions(max_side=256)).encoded
