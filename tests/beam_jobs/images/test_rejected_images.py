"""A file that can't be stored is rejected with a reason, and nothing else happens."""

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

pytest.importorskip("apache_beam")

from beam_jobs.images.image import FORMATS, ImageOptions, store_image
from beam_jobs.rejection import Reason, RejectionError
from tests.support.image_files import JPEG, decoded, drawn, noise, oriented
from tests.support.pictures import encode


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
            encode(drawn(), "PPM"),
            Reason.UNSUPPORTED_FORMAT,
            f"format PPM is not accepted: convert it to one of {', '.join(FORMATS)}",
            id="ppm",
        ),
        pytest.param(
            encode(drawn(), "ICO", sizes=[(32, 32)]),
            Reason.UNSUPPORTED_FORMAT,
            f"format ICO is not accepted: convert it to one of {', '.join(FORMATS)}",
            id="ico",
        ),
        pytest.param(
            encode(drawn((100, 15), (1, 1, 9, 9)), "PNG"),
            Reason.TOO_SMALL,
            "100×15 pixels; the shorter side must be at least 16",
            id="too_small",
        ),
        pytest.param(
            encode(Image.new("1", (1001, 1000)), "PNG"),
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
        store_image(encode(drawn(), "PNG"), [(48.0, 0.0, 60.0, 9.0, "x")], JPEG)
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
    data = encode(noise(), format_)
    with pytest.raises(RejectionError) as caught:
        store_image(data[: int(part * len(data))], [], JPEG)
    assert caught.value.reason in {Reason.TRUNCATED, Reason.CORRUPT, Reason.NOT_AN_IMAGE}
    if format_ in ("JPEG", "PNG"):
        assert caught.value.reason == Reason.TRUNCATED
        assert (
            caught.value.message
            == {
                "JPEG": "decoding failed: Corrupt JPEG data: premature end of data segment",
                "PNG": "decoding failed: OSError('image file is truncated')",
            }[format_]
        )


DAMAGED = {
    format_: oriented(noise((40, 30)), format_, 6) for format_ in ("JPEG", "PNG", "WEBP", "TIFF")
} | {format_: encode(noise((40, 30)), format_) for format_ in ("BMP", "GIF")}


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
