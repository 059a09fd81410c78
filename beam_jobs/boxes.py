"""Boxes follow their image: to fractions of the upright image, and into a padded one."""

from collections.abc import Sequence

from beam_jobs.rejection import Reason, RejectionError
from beam_jobs.row import Box

EXIF_TRANSPOSED = (5, 6, 7, 8)  # orientations that swap width and height


def relative_boxes(
    boxes: Sequence[Box], size: tuple[int, int], orientation: int, frame: str
) -> tuple[tuple[Box, ...], int]:
    """Boxes as fractions of the upright image, clipped to it; and how many were clipped."""
    if frame == "upright":
        if orientation in EXIF_TRANSPOSED:
            size = size[::-1]
        orientation = 1
    width, height = size
    relative, clipped = [], 0
    for xmin, ymin, xmax, ymax, text in boxes:
        inside = (max(xmin, 0), max(ymin, 0), min(xmax, width), min(ymax, height))
        if not (inside[0] < inside[2] and inside[1] < inside[3]):
            raise RejectionError(
                Reason.BOX_OUTSIDE,
                f"box ({xmin:g}, {ymin:g}, {xmax:g}, {ymax:g}) {text!r} has no area inside the "
                f"image of {width}×{height} pixels",
            )
        clipped += inside != (xmin, ymin, xmax, ymax)
        x0, y0, x1, y1 = (
            inside[0] / width,
            inside[1] / height,
            inside[2] / width,
            inside[3] / height,
        )
        match orientation:
            case 2:
                x0, x1 = 1 - x1, 1 - x0
            case 3:
                x0, y0, x1, y1 = 1 - x1, 1 - y1, 1 - x0, 1 - y0
            case 4:
                y0, y1 = 1 - y1, 1 - y0
            case 5:
                x0, y0, x1, y1 = y0, x0, y1, x1
            case 6:
                x0, y0, x1, y1 = 1 - y1, x0, 1 - y0, x1
            case 7:
                x0, y0, x1, y1 = 1 - y1, 1 - x1, 1 - y0, 1 - x0
            case 8:
                x0, y0, x1, y1 = y0, 1 - x1, y1, 1 - x0
        relative.append((x0, y0, x1, y1, text))
    return tuple(relative), clipped
