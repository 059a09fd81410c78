"""Encodes JPEG files with restart rows, so that a reader can decode some rows alone."""

import io
from typing import Any

from PIL import Image, JpegImagePlugin

from schemas.restart_rows import with_row_table

_UNKNOWN_SAMPLING = -1  # Pillow's word for a gray file, and for a sampling that it can't write


def encode(image: Image.Image, quality: int) -> bytes:
    """Encodes an image, of mode L or RGB, to a JPEG file with restart rows."""
    return _encode(image, quality=quality)


def encode_again(file: bytes) -> bytes:
    """Encodes a JPEG file again, with restart rows.

    The new file has the quantization tables of the old one, and its chroma subsampling where Pillow
    can write that, else 4:4:4. Pixels change a little, as decoding has rounded them.
    """
    image = JpegImagePlugin.JpegImageFile(io.BytesIO(file))
    if JpegImagePlugin.get_sampling(image) != _UNKNOWN_SAMPLING:
        return _encode(image, quality="keep")
    return _encode(image, qtables=image.quantization, subsampling="4:4:4")


def _encode(image: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    # A color profile or EXIF data would move the table of rows.
    image.save(buffer, "JPEG", restart_marker_rows=1, icc_profile=None, exif=b"", **options)
    return with_row_table(buffer.getvalue())
