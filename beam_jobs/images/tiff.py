"""Kinds of TIFF files whose pixels Pillow would read wrong, without a word.

Numbers of tags and values are those of TIFF 6.0.
"""

from dataclasses import dataclass
from typing import Any

from PIL import Image, ImagePalette, TiffImagePlugin

from beam_jobs.rejection import Reason, RejectionError

_BITS, _PHOTOMETRIC, _PLANAR, _COLOR_MAP, _SAMPLE_FORMAT = 258, 262, 284, 320, 339
_WHITE_IS_ZERO, _YCBCR = 0, 6
_IN_PLANES = 2
_UNSIGNED = 1


@dataclass(frozen=True, kw_only=True)
class GrayLevels:
    """Meaning of gray values that have more than 8 bits.

    Attributes:
      white: the value that is white, None where the file does not say it.
      inverted: whether 0 is white and `white` is black.
      unsigned: whether negative values of mode "I" stand for 2**31 and more.
    """

    white: float | None = None
    inverted: bool = False
    unsigned: bool = False


def gray_levels(image: Image.Image) -> GrayLevels:
    """Returns what the gray values of an opened image mean."""
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return GrayLevels()
    bits = _first(image, _BITS, 1)
    unsigned = _first(image, _SAMPLE_FORMAT, _UNSIGNED) == _UNSIGNED
    return GrayLevels(
        # Floats and signed numbers have a white that the format does not say.
        white=2.0**bits - 1 if unsigned and bits < 32 else None,
        inverted=_first(image, _PHOTOMETRIC, _WHITE_IS_ZERO) == _WHITE_IS_ZERO,
        unsigned=unsigned,
    )


def check_tiff(image: TiffImagePlugin.TiffImageFile) -> None:
    """Checks an opened TIFF file, and mends its palette where that has 8 bits instead of 16.

    Raises:
      RejectionError: Pillow would give it false colors.
    """
    in_planes = _first(image, _PLANAR, 1) == _IN_PLANES and len(image.getbands()) > 1
    if in_planes and (bits := _first(image, _BITS, 1)) > 8:
        raise _unsupported(f"color planes of {bits} bits")
    if _first(image, _PHOTOMETRIC, _WHITE_IS_ZERO) == _YCBCR and image.info["compression"] == "raw":
        raise _unsupported("YCbCr without compression")
    if image.mode in ("P", "PA") and max(colors := image.tag_v2[_COLOR_MAP]) < 256:
        # Pillow takes the upper 8 bits of each 16. Of (0, 255) that leaves (0, 0), all black.
        image.palette = ImagePalette.raw("RGB;L", bytes(colors))


def _first(image: TiffImagePlugin.TiffImageFile, tag: int, default: int) -> Any:
    """Returns the value of a tag, the first if it has several."""
    value = image.tag_v2.get(tag, default)
    return value[0] if isinstance(value, tuple) else value


def _unsupported(kind: str) -> RejectionError:
    return RejectionError(
        Reason.UNSUPPORTED_FORMAT,
        f"a TIFF file with {kind}, which Pillow reads wrong: convert it to PNG",
    )
