"""The place of raw pixels in the frame of a record.

A reader that maps a shard into memory finds them without parsing: they begin at byte 128 of the
frame. Frames are multiples of 64 bytes long, as TensorFlow shares the memory of a slice only if the
slice begins and ends at such multiples.

TFRecord knows no padding. An Example can hold some: a field that the readers of a protocol buffer
don't know, and skip. The field comes in front of the features and behind them.

    0        12        | 128      |           |
    header   padding … | … pixels | … padding | CRC

It takes some 120 bytes a record, 0.06 % of 256 × 256 pixels in color.
"""

from collections.abc import Mapping
from typing import Any

from schemas.example import PADDING_TAG, find_bytes
from schemas.manifest import Manifest
from schemas.tfrecord import OVERHEAD_BYTES, PAYLOAD_START

PIXELS_START = 128  # byte of a frame
ALIGNMENT = 64  # bytes
_KEY = "pixels_start"
_HEADER_BYTES = 2  # of padding: its tag and its length, which is below 128


def align_pixels(serialized: bytes) -> bytes:
    """Pads an Example with raw pixels; one that is padded already stays as it is.

    Raises:
      ValueError: the bytes are no Example with `image/encoded`, or more lies before it than fits.
    """
    start = _pixels_start(serialized)
    if start == PIXELS_START and (len(serialized) + OVERHEAD_BYTES) % ALIGNMENT == 0:
        return serialized
    front = PIXELS_START - start
    if front < _HEADER_BYTES:
        raise ValueError(f"pixels start at byte {start} of a frame, at most 126 expected")
    # Pixels start at byte 78 of a frame of 1,000 bytes. Padding of 50 bytes in front moves them to
    # byte 128, and 38 bytes at the end make 1,088 = 17 · 64. A header takes two bytes or more, so
    # 65 bytes are added where 1 byte is missing.
    end = -(front + len(serialized) + OVERHEAD_BYTES) % ALIGNMENT
    if 0 < end < _HEADER_BYTES:
        end += ALIGNMENT
    return _padding(front) + serialized + _padding(end)


def check_pixels_start(serialized: bytes) -> None:
    """Checks that the pixels of an Example lie where `align_pixels` puts them.

    Raises:
      ValueError: they don't.
    """
    start = _pixels_start(serialized)
    if start != PIXELS_START:
        raise ValueError(f"pixels start at byte {start} of the frame, {PIXELS_START} expected")


def pixels_form(encoding: str) -> dict[str, Any]:
    """Returns what a manifest's build options say of the place of pixels; nothing of JPEG files."""
    return {_KEY: PIXELS_START} if encoding == "raw" else {}


def are_aligned(manifest: Manifest) -> bool:
    """Tells whether the pixels of all records lie where `align_pixels` puts them."""
    return all(_says_aligned(generation.build_options) for generation in manifest.generations)


def _pixels_start(serialized: bytes) -> int:
    return PAYLOAD_START + find_bytes(memoryview(serialized), "image/encoded").start


def _says_aligned(build_options: Mapping[str, Any]) -> bool:
    return build_options.get(_KEY) == PIXELS_START


def _padding(size: int) -> bytes:
    return bytes([PADDING_TAG, size - _HEADER_BYTES]).ljust(size, b"\0") if size else b""
