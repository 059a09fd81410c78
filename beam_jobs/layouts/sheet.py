"""The sheet of paper in a photo: cut out of what it lies on, and straightened."""

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from beam_jobs.layouts.components import components

_SIDE = 200  # of the small image in which the sheet is looked for, in pixels
_MIN_CONTRAST = 40  # between the sheet and what is around it, of 255
_SHARES = (0.08, 0.97)  # of the image that a sheet may take
_LYING = 1.3  # a sheet is lying whose width is so many times its height
_REACH = 3  # pixels of the small image, within which a sharp outline darkens by _MIN_STEP
_MIN_STEP = 40  # of 255
_MIN_SHARP = 0.8  # share of the outline that must be sharp
_MAX_TILT = 25  # degrees
_MARGIN = 0.012  # of the sheet's width, cut off at each side

Mask = npt.NDArray[np.bool_]


def cut_out_sheet(image: Image.Image) -> Image.Image:
    """Cuts the receipt out of a photo.

    The sheet is the largest region that is lighter than what is around it. A sheet that lies on its
    side is turned left, a tilted one is turned until its long edges are vertical.

    Args:
      image: grayscale.

    Returns:
      The sheet alone; the image as it is where there is none: a scan that is white up to its edges.
    """
    mask = _mask(image)
    if mask is None:
        return image
    rows, columns = np.nonzero(mask)
    if np.ptp(columns) + 1 > _LYING * (np.ptp(rows) + 1):
        image, mask = image.transpose(Image.Transpose.ROTATE_90), np.rot90(mask)
    tilt = _tilt(mask)
    large = Image.fromarray(mask.astype(np.uint8) * 255).resize(
        image.size, Image.Resampling.NEAREST
    )
    if tilt and abs(tilt) < _MAX_TILT:
        image = image.rotate(-tilt, Image.Resampling.BILINEAR, fillcolor=255)
        large = large.rotate(-tilt, Image.Resampling.NEAREST)
    inside = np.asarray(large) > 0
    left, right = _most(inside.sum(axis=0))
    top, bottom = _most(inside.sum(axis=1))
    margin = round(_MARGIN * (right - left))
    if right - left <= 4 * margin + 16 or bottom - top <= 4 * margin + 16:
        return image
    return image.crop((left + margin, top + margin, right - margin, bottom - margin))


def _mask(image: Image.Image) -> Mask | None:
    """Returns which pixels of a small image are the sheet's, bool [height, width]."""
    scale = _SIDE / max(image.size)
    width, height = (max(8, round(side * scale)) for side in image.size)
    small = image.resize((width, height), Image.Resampling.BOX)
    # The largest value around each pixel: letters vanish from the sheet.
    light = np.asarray(small.filter(ImageFilter.MaxFilter(5)).filter(ImageFilter.GaussianBlur(1)))
    threshold, contrast = _otsu(light)
    if contrast < _MIN_CONTRAST:
        return None
    from scipy.ndimage import binary_fill_holes

    found = components(light > threshold)
    mask: Mask = binary_fill_holes(found.labels == 1 + found.areas.argmax())
    is_sheet = _SHARES[0] < mask.mean() < _SHARES[1] and _sharp_share(light, mask) > _MIN_SHARP
    return mask if is_sheet else None


def _sharp_share(light: npt.NDArray[np.uint8], mask: Mask) -> float:
    """Returns for which share of its outline a mask is much lighter than what is around it.

    The border of a shadow that falls on a sheet is blurred, the border of the sheet is not.
    """
    from scipy.ndimage import binary_erosion, grey_dilation, grey_erosion

    # Outside of the image, everything is the sheet's: where it is cut off, it has no outline.
    outline = mask & ~binary_erosion(mask, np.ones((3, 3)), border_value=1)
    square = (2 * _REACH + 1,) * 2
    steps = grey_dilation(light, square)[outline].astype(int) - grey_erosion(light, square)[outline]
    return float((steps >= _MIN_STEP).mean()) if len(steps) else 0.0


def _otsu(values: npt.NDArray[np.uint8]) -> tuple[int, float]:
    """Finds what parts dark from light best (Otsu 1979), and how far their means are apart."""
    counts = np.bincount(values.ravel(), minlength=256)
    below, total = counts.cumsum(), counts.sum()
    sums = (counts * np.arange(256)).cumsum()
    parts = (below > 0) & (below < total)
    if not parts.any():
        return 0, 0.0
    dark = sums / np.maximum(below, 1)
    light = (sums[-1] - sums) / np.maximum(total - below, 1)
    between = np.where(parts, below * (total - below) * (light - dark) ** 2, -1.0)
    threshold = int(between.argmax())
    return threshold, float(light[threshold] - dark[threshold])


def _tilt(mask: Mask) -> float:
    """Returns by how many degrees the left and right edges of a sheet lean to the right."""
    rows = np.flatnonzero(mask.any(axis=1))
    rows = rows[len(rows) // 6 : len(rows) - len(rows) // 6]  # its corners may be torn or curled
    if len(rows) < 12:
        return 0.0
    step = len(rows) // 3
    left = mask[rows].argmax(axis=1)
    right = mask.shape[1] - 1 - mask[rows, ::-1].argmax(axis=1)
    slopes = [np.median(edge[step:] - edge[:-step]) / step for edge in (left, right)]
    return float(np.degrees(np.arctan(np.mean(slopes))))


def _most(counts: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Returns where counts begin and end to be half as large as the largest tenth of them."""
    found = np.flatnonzero(counts > np.quantile(counts, 0.9) / 2)
    return (int(found[0]), int(found[-1]) + 1) if len(found) else (0, len(counts))
