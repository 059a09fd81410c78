"""Encodes images to JPEG files of which any rows can be decoded alone."""

import io
from typing import Any

from PIL import Image

from schemas.restart_rows import with_row_table


def encode(image: Image.Image, quality: int) -> bytes:
    """Encodes an image, of mode L or RGB, to a JPEG file with restart rows."""
    return _encode(image, quality=quality)


def encode_again(file: bytes) -> bytes:
    """Encodes a JPEG file again, with restart rows and with its own tables and subsampling.

    Its pixels change by the rounding of a decoded file alone.
    """
    with Image.open(io.BytesIO(file)) as image:
        return _encode(image, quality="keep")


def _encode(image: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    # What a file says of itself, such as its color profile, would move the table.
    image.save(buffer, "JPEG", restart_marker_rows=1, icc_profile=None, exif=b"", **options)
    return with_row_table(buffer.getvalue())
