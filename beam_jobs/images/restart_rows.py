"""Encodes images to JPEG files of which any rows can be decoded alone."""

import io
from typing import Any

from PIL import Image, JpegImagePlugin

from schemas.restart_rows import with_row_table

_OTHER_SAMPLING = -1  # of a gray file, and of one whose sampling Pillow can't write


def encode(image: Image.Image, quality: int) -> bytes:
    """Encodes an image, of mode L or RGB, to a JPEG file with restart rows."""
    return _encode(image, quality=quality)


def encode_again(file: bytes) -> bytes:
    """Encodes a JPEG file again, with restart rows and with its own tables.

    The subsampling of its colors is that of the file, or none where Pillow lacks it. So its pixels
    change by the rounding of what is decoded, where colors are subsampled by some levels of 255.
    """
    with Image.open(io.BytesIO(file)) as image:
        if JpegImagePlugin.get_sampling(image) != _OTHER_SAMPLING:
            return _encode(image, quality="keep")
        return _encode(image, qtables=image.quantization, subsampling="4:4:4")  # type: ignore[attr-defined]


def _encode(image: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    # What a file says of itself, such as its color profile, would move the table.
    image.save(buffer, "JPEG", restart_marker_rows=1, icc_profile=None, exif=b"", **options)
    return with_row_table(buffer.getvalue())
