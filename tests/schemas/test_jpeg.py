"""The structure of JPEG files: what TensorFlow can't decode is named, what it can is accepted."""

import io
import warnings
from typing import Any

import numpy as np
import pytest
from PIL import Image

from schemas.jpeg import SOS, check_jpeg, segments
from tests.support.pictures import encode

SAVED: dict[str, dict[str, Any]] = {
    "gray": {"mode": "L"},
    "4:4:4": {"subsampling": "4:4:4"},
    "4:2:0": {"subsampling": "4:2:0"},
    "progressive": {"progressive": True},
    "restart markers": {"restart_marker_blocks": 3},
    "comment and profile": {"comment": "C\xff\xd9", "icc_profile": b"\xff\xd9\xff\xda" * 20_000},
}


def jpeg(mode: str = "RGB", *, seed: int = 3, **options: Any) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 56, 3), np.uint8)
    return encode(Image.fromarray(pixels).convert(mode), "JPEG", **options)


def frame_at(data: bytes) -> int:
    """Byte at which the frame header starts."""
    [offset] = [each.offset for each in segments(data) if each.marker in (0xC0, 0xC2)]
    return offset


def with_byte(data: bytes, position: int, value: int) -> bytes:
    changed = bytearray(data)
    changed[position] = value
    return bytes(changed)


def with_frame(value: int, position: int = 1) -> bytes:
    """A baseline file with another byte in its frame header: 1 is the marker, 4 the precision."""
    data = jpeg()
    return with_byte(data, frame_at(data) + position, value)


def refusal(data: bytes) -> str:
    try:
        check_jpeg(data)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("options", SAVED.values(), ids=SAVED)
def test_accepts_what_pillow_saves(options: dict[str, Any]) -> None:
    check_jpeg(jpeg(**options))


def test_accepts_fill_bytes_and_extended_frames() -> None:
    data = jpeg()
    check_jpeg(data[:2] + b"\xff\xff" + data[2:])
    check_jpeg(with_frame(0xC1))


def test_counts_scans() -> None:
    scans = {
        progressive: sum(each.marker == SOS for each in segments(jpeg(progressive=progressive)))
        for progressive in (False, True)
    }
    assert scans == {False: 1, True: 10}


@pytest.mark.parametrize("options", SAVED.values(), ids=SAVED)
def test_refuses_every_cut(options: dict[str, Any]) -> None:
    data = jpeg(**options)
    for missing in (1, 2, 3, 10, len(data) // 2, len(data) - 3, len(data)):
        with pytest.raises(ValueError, match="JPEG file"):
            check_jpeg(data[: len(data) - missing])


def scan_of(data: bytes) -> tuple[int, int]:
    [scan] = [each for each in segments(data) if each.marker == SOS]
    return scan.offset, scan.end


def twice_scanned() -> bytes:
    data = jpeg()
    start, end = scan_of(data)
    return data[:end] + data[start:end] + data[end:]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "not a JPEG file: it starts with nothing"),
        (b"\x89PNG", "not a JPEG file: it starts with 8950"),
        (b"\xff\xd8", "JPEG file without an end marker (FFD9)"),
        (b"\xff\xd8\xff\xd9", "JPEG file without a scan"),
        (jpeg()[:-2], "JPEG file without an end marker (FFD9)"),
        (jpeg()[:-1], "JPEG file without an end marker (FFD9)"),
        (jpeg() + b"rubbish", "JPEG file with 7 bytes behind its end marker"),
        (jpeg() + jpeg(), f"JPEG file with {len(jpeg())} bytes behind its end marker"),
        (jpeg("CMYK"), "JPEG file of 4 components: only 1 (grayscale) and 3 (color) are supported"),
        (with_frame(12, 4), "JPEG file of 12 bits: only 8 are supported"),
        (
            with_byte(with_frame(0, 5), frame_at(jpeg()) + 6, 0),
            "JPEG file of 56×0 pixels: both sides must be positive",
        ),
        (
            with_frame(0xC3),
            "lossless JPEG file: only baseline, extended and progressive files with Huffman codes "
            "are supported",
        ),
        (with_frame(0xC9), "arithmetic-coded JPEG file: only"),
        (with_frame(0xCA), "arithmetic-coded progressive JPEG file: only"),
        (with_frame(0xF7), "JPEG-LS JPEG file: only"),
        (with_frame(0xC5), "JPEG file with an unknown marker: marker FFC5 at byte "),
        (with_frame(0xE3), "JPEG file with a scan before its frame: marker FFDA at byte "),
        (with_frame(0x41), "damaged JPEG file: a marker is due at byte "),
        (with_frame(0xFF, 2), "claims 65297 bytes, "),
        (
            b"\xff\xd8" + b"\xff\xc0\0\x0b\x08\0\x10\0\x10\x01\1\x11\0" * 2,
            "JPEG file with a second frame: marker FFC0 at byte 15",
        ),
        (b"\xff\xd8\xff\xc0\0\5\x08\0\x10", "damaged JPEG file: the frame at byte 2 is too short"),
        (b"\xff\xd8\xff\xda\0\2\xff\xd9", "damaged JPEG file: the scan at byte 2 has no header"),
        (
            twice_scanned(),
            f"JPEG file with a marker FFDA at byte {scan_of(jpeg())[1]}, behind its only scan: "
            "only its end may follow",
        ),
    ],
)
def test_names_what_is_wrong(data: bytes, sentence: str) -> None:
    assert sentence in refusal(data)


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """One flipped bit, or five changed bytes."""
    changed = bytearray(data)
    if rng.integers(2):
        changed[rng.integers(len(data))] ^= 1 << rng.integers(8)
    else:
        start = rng.integers(len(data) - 5)
        changed[start : start + 5] = rng.bytes(5)
    return bytes(changed)


def pillow_decodes(data: bytes) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            Image.open(io.BytesIO(data)).load()
    except (OSError, SyntaxError, ValueError):
        return False
    return True


def test_tensorflow_decodes_what_pillow_and_the_check_accept() -> None:
    """Pillow alone accepts files that TensorFlow does not decode."""
    tensorflow = pytest.importorskip("tensorflow")
    rng = np.random.default_rng(20)
    undecodable = 0
    for name, options in SAVED.items():
        whole = jpeg(**options)
        files = [damaged(whole, rng) for _ in range(300)]
        files += [jpeg(**options, seed=seed)[:-2] for seed in range(50)]
        accepted = [data for data in files if pillow_decodes(data)]
        valid = [data for data in accepted if not refusal(data)]
        assert len(valid) > 20, name
        for data in valid:
            assert tensorflow.io.decode_jpeg(data).shape[2] in (1, 3)
        for data in accepted:
            try:
                tensorflow.io.decode_jpeg(data)
            except tensorflow.errors.InvalidArgumentError:
                undecodable += 1
    assert undecodable > 5
