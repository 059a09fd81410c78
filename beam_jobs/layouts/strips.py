"""Strips of a receipt: the ink of its first words, found without reading any of them."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from beam_jobs.layouts.components import components

_WIDTH = 640  # of the printed part, in pixels: a letter of 40 in a line is 16 wide
_HEADER = 1.0  # height of what is looked at, in widths
_MARGIN = 0.02  # around what is printed, in widths of the sheet
_BLUR = 35  # pixels; wider than the strokes of a heading
_DARKEST = 60  # mean around a pixel, of 255: below it, noise is not amplified further
_INK = 20  # darker than what is around by so many of 255
_ANGLES = (2.0, 1.0, 0.5)  # degrees: steps in which the skew is looked for, within ±5.5
_MIN_AREA = 9  # of what is no noise, in pixels
_MAX_HEIGHT = 200  # of a component that may be printed, in pixels
_MIN_LINE = 7  # height of a line, in pixels
_MAX_LINES = 12
_MIN_STRIP = (6, 8)  # height and width, in pixels

Pixels = npt.NDArray[np.uint8]


def first_strips(sheet: Image.Image) -> list[Pixels]:
    """Finds the words at the top of a receipt.

    Lines are where rows have ink; within a line, gaps wider than it is high part one strip from the
    next. A logo is a strip, too, and so is a line whose words stand close.

    Args:
      sheet: the receipt, grayscale and upright up to some degrees.

    Returns:
      Strips, from the top; each is uint8 [height, width], how much darker its ink is than the
      paper, and no row or column at its edges is without ink.
    """
    header = _header(sheet)
    if header is None:
        return []
    ink = _ink(header, _BLUR)
    if angle := _skew(ink):
        ink = ink.rotate(angle, Image.Resampling.BILINEAR)
    pixels = _without_noise(np.asarray(ink))
    rows = (pixels > 0).sum(axis=1)
    least = max(2, 0.04 * np.quantile(rows, 0.95))
    lines = [(top, end) for top, end in _runs(rows > least) if end - top >= _MIN_LINE]
    return [strip for top, end in lines[:_MAX_LINES] for strip in _strips(pixels[top:end])]


def _header(sheet: Image.Image) -> Image.Image | None:
    """Returns the top of what is printed, scaled to a fixed width; None if nothing is."""
    scale = min(1, _WIDTH / 2 / sheet.width)
    small = sheet.resize(
        (max(1, round(sheet.width * scale)), max(1, round(sheet.height * scale))),
        Image.Resampling.BOX,
    )
    printed = _without_noise(np.asarray(_ink(small, _BLUR // 2))) > 0
    rows = np.flatnonzero(np.count_nonzero(printed, axis=1) > 1)
    columns = np.flatnonzero(np.count_nonzero(printed, axis=0) > 1)
    if len(rows) < 10 or len(columns) < 10:
        return None
    margin = round(_MARGIN * sheet.width)
    left = max(0, round(int(columns[0]) / scale) - margin)
    top = max(0, round(int(rows[0]) / scale) - margin)
    right = min(sheet.width, round((int(columns[-1]) + 1) / scale) + margin)
    bottom = min(sheet.height, round((int(rows[-1]) + 1) / scale) + margin)
    bottom = min(bottom, top + round((right - left) * _HEADER))
    size = (_WIDTH, max(8, round((bottom - top) * _WIDTH / (right - left))))
    return sheet.crop((left, top, right, bottom)).resize(size, Image.Resampling.BILINEAR)


def _ink(image: Image.Image, blur: int) -> Image.Image:
    """Returns how much darker each pixel is than the mean around it, as a share of that, of 255."""
    # A share, so that a letter is as dark in a shadow as it is in the light.
    around = np.asarray(image.filter(ImageFilter.BoxBlur(blur))).astype(np.int64)
    darker = np.maximum(around - np.asarray(image), 0)
    return Image.fromarray((darker * 255 // np.maximum(around, _DARKEST)).astype(np.uint8))


def _skew(ink: Image.Image) -> float:
    """Finds the angle, in degrees, that makes lines horizontal.

    Then the sums of rows differ most from one row to the next (Postl 1986). Of equally good angles,
    the smallest.
    """
    height = max(4, round(ink.height * 300 / ink.width))
    small = ink.resize((300, height), Image.Resampling.BOX)

    @cache
    def contrast(angle: float) -> tuple[int, float]:
        turned = small.rotate(angle, Image.Resampling.BILINEAR) if angle else small
        sums = np.asarray(turned).sum(axis=1, dtype=np.int64)
        return int(((sums[1:] - sums[:-1]) ** 2).sum()), -abs(angle)

    best = 0.0
    for step in _ANGLES:
        # Two steps to each side at first, then one: -4 -2 0 2 4 and, if 2 is best, 1 2 3.
        reach = 2 if step == _ANGLES[0] else 1
        best = max((best + step * n for n in range(-reach, reach + 1)), key=contrast)
    return best


def _without_noise(ink: Pixels) -> Pixels:
    """Returns ink that may be printed: no dots, nothing that reaches the edges, no long folds."""
    height, width = ink.shape
    found = components(ink > _INK)
    top, left, bottom, right = found.boxes.T
    printed = (found.areas >= _MIN_AREA) & (bottom - top < _MAX_HEIGHT)
    printed &= (left > 0) & (top > 0) & (right < width) & (bottom < height)
    return np.where(np.concatenate([[False], printed])[found.labels], ink, 0).astype(np.uint8)


def _strips(line: Pixels) -> Iterator[Pixels]:
    """Yields the strips of a line."""
    height = len(line)
    words: list[list[int]] = []
    for left, end in _runs((line > 0).any(axis=0)):
        if words and left - words[-1][1] <= height:
            words[-1][1] = end
        else:
            words.append([left, end])
    for left, end in words:
        rows = np.flatnonzero((line[:, left:end] > 0).any(axis=1))
        strip = line[rows[0] : rows[-1] + 1, left:end]
        if strip.shape[0] >= _MIN_STRIP[0] and strip.shape[1] >= _MIN_STRIP[1]:
            yield strip


def _runs(there: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Returns the runs of True: of [0 1 1 0 1], (1, 3) and (4, 5)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(np.int8)))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]
