"""Limits of memory, scans and pages, checked against an image's header before it is decoded."""

import io
import re

from PIL import Image, TiffImagePlugin

from beam_jobs.rejection import Reason, RejectionError

# Peak of decoding, converting and turning, measured; `test_decode_limits` holds it against these.
_BYTES_PER_PIXEL = 14
_BYTES_PER_PIXEL_OF = {"WEBP": 20}  # its decoder keeps several canvases
# Every scan of a JPEG file visits all pixels. Progressive files usually have 10, or 6 in gray.
_USUAL_SCANS = 16
_START_OF_SCAN = 0xDA
_MARKER = re.compile(rb"\xff+([^\xff])(..)(.)", re.DOTALL)  # marker, length, first byte
_NEW_SUBFILE_TYPE = 254
_THUMBNAIL_OR_MASK = 0b101
_MAX_DIRECTORIES = 16


def memory_bytes(image: Image.Image) -> int:
    """Upper bound of the memory in bytes that preparing an opened image takes, beside its file."""
    per_pixel = _BYTES_PER_PIXEL_OF.get(image.format or "", _BYTES_PER_PIXEL)
    return image.width * image.height * per_pixel


def check_limits(
    image: Image.Image, data: bytes, *, max_pixels: int, max_memory_bytes: int
) -> None:
    """Checks an opened image, not yet decoded, and its file.

    Raises:
      RejectionError: decoding would take too much memory or time, or lose all pages but the first.
    """
    if (needed := memory_bytes(image)) > max_memory_bytes:
        raise RejectionError(
            Reason.TOO_MUCH_MEMORY,
            f"{image.width}×{image.height} pixels may take {needed >> 20} MiB to prepare, "
            f"{max_memory_bytes >> 20} are allowed: raise --max-image-memory-mb if the image is "
            "genuine",
        )
    if image.format in ("JPEG", "MPO"):
        scans = _scan_count(data, progressive="progressive" in image.info)
        allowed = _USUAL_SCANS * max_pixels // (image.width * image.height)
        if scans > allowed:
            raise RejectionError(
                Reason.TOO_MANY_SCANS,
                f"{scans} scans of {image.width}×{image.height} pixels; at this size {allowed} are "
                "allowed: encode the image anew, or raise --max-pixels if it is genuine",
            )
    if isinstance(image, TiffImagePlugin.TiffImageFile) and _has_second_page(image, data):
        raise RejectionError(
            Reason.MANY_PAGES,
            "the TIFF file has more than one page: save each page to a file of its own, with a "
            "row of its own",
        )


def _scan_count(data: bytes, *, progressive: bool) -> int:
    """Counts the scans that are decoded, or more: an EXIF thumbnail has scans of its own."""
    return 1 if not progressive and _has_single_scan(data) else data.count(b"\xff\xda")


def _has_single_scan(data: bytes) -> bool:
    """Returns whether the first scan of a sequential JPEG file holds all components.

    Decoders stop behind such a scan, whatever follows it.
    """
    offset, components = 2, 0
    while segment := _MARKER.match(data, offset):
        marker, length, first = segment[1][0], int.from_bytes(segment[2]), segment[3][0]
        if marker == _START_OF_SCAN:
            return first == components
        if marker in (0xC0, 0xC1):  # length, precision, height, width, components
            components = data[segment.start(2) + 7] if len(data) > segment.start(2) + 7 else 0
        offset = segment.start(2) + length
    return False


def _has_second_page(image: TiffImagePlugin.TiffImageFile, data: bytes) -> bool:
    """Returns whether a TIFF file has a second image other than a thumbnail or a mask."""
    if not image.is_animated:
        return False
    with Image.open(io.BytesIO(data), formats=["TIFF"]) as pages:
        assert isinstance(pages, TiffImagePlugin.TiffImageFile)
        for number in range(1, _MAX_DIRECTORIES):
            try:
                pages.seek(number)
            except EOFError:
                return False
            except Exception:  # a broken directory, of which a plugin can raise anything: no page
                return False
            if not pages.tag_v2.get(_NEW_SUBFILE_TYPE, 0) & _THUMBNAIL_OR_MASK:
                return True
    return True
