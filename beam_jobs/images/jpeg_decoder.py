"""JPEG files decoded by libjpeg-turbo, with its warnings of damaged data.

libjpeg-turbo decodes what it can of damaged data, such as zeros in place of a block that was never
written: the rest of the image is gray or shifted. It warns of that. Pillow hides these warnings,
simplejpeg raises them, and both decode to the same pixels in the same time.
"""

import io
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image

from beam_jobs.rejection import Reason, RejectionError
from schemas.jpeg import PROGRESSIVE, SOS, has_scalable_frame, segments

SCALES = (8, 4, 2, 1)
END_MARKER = b"\xff\xd9"
_LAYOUTS = {"L": ("GRAY", "L"), "RGB": ("RGBX", "RGBX"), "CMYK": ("CMYK", "CMYK;I")}
# Warnings that harm no pixel. All others are of damage, or are errors.
_HARMLESS = re.compile(
    "Corrupt JPEG data: bad ICC marker|Unknown Adobe color transform"
    "|Invalid SOS parameters for sequential JPEG"
)
_JFIF, _VERSION = b"\xff\xe0\x00\x10JFIF\x00", 11  # the segment, and the byte of its version
_KNOWN_VERSIONS = (b"\x01", b"\x02")
_ICC, _ADOBE = 0xE2, 0xEE
_TRANSFORM = 11  # byte of the header of an Adobe segment
_WHOLE_SCAN = b"\x00\x3f\x00"  # all coefficients, with all bits
_DAMAGE = re.compile("Corrupt JPEG data: |Premature end|Inconsistent progression")
_NO_END = "Premature end of JPEG file"
# What is left over when all pixels are decoded harms nothing: a real receipt has 33 bytes. In front
# of a restart marker (D0 to D7), or where there are more, pixels were lost or shifted.
_EXTRANEOUS = re.compile(r"(\d+) extraneous bytes before marker 0x(?!d[0-7])")
_MAX_EXTRANEOUS_BYTES = 64
_SEQUENTIAL = (0xC0, 0xC1)
_COEFFICIENTS = 64  # of a block of 8×8 pixels


def decodes(data: bytes, mode: str) -> bool:
    """Returns whether `decode_jpeg` can decode a file that has a mode of Pillow.

    It can't decode rare frames, rare chroma subsamplings and odd headers. A lossless frame that is
    decoded at a reduced scale would overflow the memory of simplejpeg, as it does that of Pillow.
    """
    if mode not in _LAYOUTS or not has_scalable_frame(data):
        return False
    try:
        simplejpeg.decode_jpeg_header(_of_known_version(data))
    except ValueError:
        return False
    return True


def decode_jpeg(data: bytes, mode: str, *, scale: int = 1) -> Image.Image:
    """Decodes a file for which `decodes` is true.

    Args:
      data: the file.
      mode: "L", "RGB" or "CMYK"; "L" is also allowed for a file of mode "RGB".
      scale: 1, 2, 4 or 8, by which width and height are divided, rounded up.

    Raises:
      RejectionError: the file ends early, or its data are damaged.
    """
    color_space, raw_mode = _LAYOUTS[mode]
    data = _of_known_version(data)
    try:
        try:
            pixels = _decoded(data, color_space, scale)
        except ValueError as warning:
            if str(warning) != _NO_END:
                raise
            # Then only the end marker may be missing.
            data += END_MARKER
            pixels = _decoded(data, color_space, scale)
    except ValueError as error:
        early = str(error.__context__) == _NO_END
        reason = Reason.TRUNCATED if early else Reason.CORRUPT
        raise RejectionError(reason, f"decoding failed: {error}") from error
    if _lacks_scans(data):
        raise RejectionError(
            Reason.TRUNCATED, "the last scans of the progressive JPEG file are missing"
        )
    size = (pixels.shape[1], pixels.shape[0])
    return Image.frombytes(mode, size, pixels, "raw", raw_mode)


def _decoded(data: bytes, color_space: str, scale: int) -> npt.NDArray[np.uint8]:
    """Decodes a file; raises ValueError if its data are damaged."""
    height, width, *_ = simplejpeg.decode_jpeg_header(data)
    # The scale is the smallest that leaves these sides.
    sides = {"min_height": -(-height // scale), "min_width": -(-width // scale)}
    options = {"colorspace": color_space, "min_factor": scale, **sides}
    try:
        return simplejpeg.decode_jpeg(data, **options)
    except ValueError as warning:
        if not _is_harmless(str(warning)):
            raise
    # libjpeg-turbo tells only its first warning, so a harmless one can hide a warning of damage.
    _check_beside_oddities(data, **options)
    # After an error, this would return memory that nothing was written to.
    return simplejpeg.decode_jpeg(data, strict=False, **options)


def _check_beside_oddities(data: bytes, **options: Any) -> None:
    """Raises ValueError if something else is wrong than `_HARMLESS` warnings say."""
    try:
        simplejpeg.decode_jpeg(_without_oddities(data), **options)
    except ValueError as warning:
        if not _is_harmless(str(warning)):
            raise


def _of_known_version(data: bytes) -> bytes:
    """Changes a version of JFIF that libjpeg-turbo does not know, and warns of, to 1."""
    if data[2:_VERSION] != _JFIF or data[_VERSION : _VERSION + 1] in _KNOWN_VERSIONS:
        return data
    return data[:_VERSION] + b"\x01" + data[_VERSION + 1 :]


def _without_oddities(data: bytes) -> bytes:
    """Removes what `_HARMLESS` warnings are about, to look for damage; colors may change.

    A file with bytes between its segments, which decoders skip, stays as it is.
    """
    parts, is_sequential = [data[:2]], False
    try:
        all_segments = list(segments(data))
    except ValueError:
        return data
    for segment in all_segments:
        part = bytearray(data[segment.offset : segment.end])
        start = part.find(segment.header)  # behind the marker and its length
        is_sequential |= segment.marker in _SEQUENTIAL
        if segment.marker == _ICC:
            continue
        if segment.marker == _ADOBE and len(segment.header) > _TRANSFORM:
            part[start + _TRANSFORM] = 1
        if segment.marker == SOS and is_sequential:
            end = start + len(segment.header)
            part[end - len(_WHOLE_SCAN) : end] = _WHOLE_SCAN
        parts.append(bytes(part))
    return b"".join(parts)


def _lacks_scans(data: bytes) -> bool:
    """Returns whether a progressive file was cut between two scans, so that its image is blurred.

    The first scans give the upper bits of coefficients, later ones add bit after bit. Each scan
    names its components, a range of coefficients, and how many of their bits are still to come
    (ITU-T T.81, G.1.1.1). Encoders end with the brightness, the first component. They may leave out
    coefficients of color that are all zero.
    """
    missing_bits: dict[int, list[int | None]] = {}  # of each coefficient; None if none came yet
    try:
        for segment in segments(data):
            if segment.marker == PROGRESSIVE:
                components = segment.header[6 : 6 + 3 * segment.header[5] : 3]
                missing_bits = {component: [None] * _COEFFICIENTS for component in components}
            elif segment.marker == SOS:
                if not missing_bits:
                    return False  # not progressive
                count = segment.header[0]
                first, last, bits = segment.header[1 + 2 * count : 4 + 2 * count]
                for component in segment.header[1 : 1 + 2 * count : 2]:
                    missing_bits[component][first : last + 1] = [bits & 15] * (last + 1 - first)
    except ValueError:
        return False  # odd bytes between segments, which the decoder has skipped
    brightness, *colors = missing_bits.values()
    return any(brightness) or None in brightness or any(any(color) for color in colors)


def check_hidden_damage(data: bytes) -> None:
    """Checks a file for which `decodes` is false, as Pillow hides the warnings of damaged data.

    Damage is not found in files of frames and samplings that simplejpeg can't decode.

    Raises:
      RejectionError: the data are damaged.
    """
    if not has_scalable_frame(data):
        return
    try:
        simplejpeg.decode_jpeg(_without_oddities(data) + END_MARKER, colorspace="GRAY")
    except ValueError as error:
        warning = str(error)
        if _DAMAGE.match(warning) and not _is_harmless(warning):
            raise RejectionError(Reason.CORRUPT, f"decoding failed: {warning}") from error


def check_jpeg_pixels(data: bytes) -> None:
    """Checks the pixels' data of a file for which `decodes` is true, in half the time of decoding.

    Raises:
      RejectionError: as `decode_jpeg`.
    """
    decode_jpeg(data, "L", scale=8)


def draft_gray(image: Image.Image, size: tuple[int, int]) -> None:
    """Lets Pillow decode an opened JPEG file in gray, and at a scale that leaves a size.

    Other images, and JPEG files of rare frames, stay as they are.
    """
    file = getattr(image, "fp", None)
    if isinstance(file, io.BytesIO) and has_scalable_frame(file.getvalue()):
        image.draft("L", size)


def _is_harmless(warning: str) -> bool:
    if match := _EXTRANEOUS.search(warning):
        return int(match[1]) <= _MAX_EXTRANEOUS_BYTES
    return bool(_HARMLESS.match(warning))
