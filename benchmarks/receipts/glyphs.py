"""Masks of text, fast: small letters are drawn once and then set side by side."""

from functools import lru_cache
from math import ceil

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from benchmarks.receipts.fonts import font

_SET_PX = 16  # letters up to this size are kept: to hint one takes longer than to copy it


def text_mask(
    text: str, family: str, *, bold: bool, size: float
) -> tuple[Image.Image, tuple[float, float]]:
    """The ink of a text, as wide as the font has it and as high as its lines.

    Args:
      text: one line.
      family: one of `fonts`.
      bold: whether to use its bold weight.
      size: pixels an em.

    Returns:
      An "L" image drawn at a whole number of pixels an em, and the width and height in pixels
      to which the caller must scale it to get `size`.
    """
    whole = max(5, ceil(size))
    if whole > _SET_PX:
        mask = _drawn(text, family, bold, whole)
        width = float(mask.width)
    else:
        letters = [_letter(letter, family, bold, whole) for letter in text]
        mask = Image.fromarray(np.concatenate([pixels for pixels, _ in letters], axis=1))
        width = sum(advance for _, advance in letters)
    return mask, (width * size / whole, mask.height * size / whole)


@lru_cache(maxsize=1 << 14)
def _letter(letter: str, family: str, bold: bool, size: int) -> tuple[NDArray[np.uint8], float]:
    """A letter's mask, uint8 [height, whole advance], and its exact advance in pixels."""
    advance = font(family, bold=bold, size=size).getlength(letter)
    pixels = np.asarray(_drawn(letter, family, bold, size))
    return np.ascontiguousarray(pixels[:, : max(1, round(advance))]), advance


def _drawn(text: str, family: str, bold: bool, size: int) -> Image.Image:
    face = font(family, bold=bold, size=size)
    ascent, descent = face.getmetrics()
    mask = Image.new("L", (int(face.getlength(text)) + 2, ascent + descent))
    ImageDraw.Draw(mask).text((0, ascent), text, fill=255, font=face, anchor="ls")
    return mask
