"""Boxes of text lines, turned with their image and scaled to fractions of it."""

from collections.abc import Sequence

import numpy as np

from beam_jobs.rejection import Reason, RejectionError
from beam_jobs.shown import shown
from beam_jobs.sources.row import Box

EXIF_TRANSPOSED = (5, 6, 7, 8)  # orientations that swap width and height
# By EXIF orientation: the old side that each new one (xmin, ymin, xmax, ymax) comes from, and the
# new sides that are mirrored, 1 - side. In an image of orientation 6, which is to be turned right
# by 90 degrees, the new xmin is 1 - ymax: old side 3, mirrored. The new ymin is xmin: old side 0.
_TURNS = {
    2: ([2, 1, 0, 3], [0, 2]),
    3: ([2, 3, 0, 1], [0, 1, 2, 3]),
    4: ([0, 3, 2, 1], [1, 3]),
    5: ([1, 0, 3, 2], []),
    6: ([3, 0, 1, 2], [0, 2]),
    7: ([3, 2, 1, 0], [0, 1, 2, 3]),
    8: ([1, 2, 3, 0], [1, 3]),
}


def relative_boxes(
    boxes: Sequence[Box], size: tuple[int, int], orientation: int, frame: str
) -> tuple[tuple[Box, ...], int]:
    """Scales boxes to fractions of the upright image, and clips them to it.

    Returns:
      The boxes, and the number of boxes that were clipped.
    """
    if frame == "upright":
        if orientation in EXIF_TRANSPOSED:
            size = size[::-1]
        orientation = 1
    if not boxes:
        return (), 0
    given = np.array([box[:4] for box in boxes])
    ends = np.array([*size, *size], float)
    inside = given.clip(0, ends)
    flat = (inside[:, :2] >= inside[:, 2:]).any(axis=1)
    if flat.any():
        *corners, text = boxes[int(flat.argmax())]
        raise RejectionError(
            Reason.BOX_OUTSIDE,
            f"box ({', '.join(f'{side:g}' for side in corners)}) {shown(text)} has no area inside "
            f"the image of {size[0]}×{size[1]} pixels",
        )
    sides = inside / ends
    if orientation in _TURNS:
        source, mirrored = _TURNS[orientation]
        # Of orientation 6: the sides 0.1 0.2 0.3 0.6 are, in the order 3 0 1 2, 0.6 0.1 0.2 0.3
        # and, with 0 and 2 mirrored, 0.4 0.1 0.8 0.3.
        sides = sides[:, source]
        sides[:, mirrored] = 1 - sides[:, mirrored]
    relative = tuple((*corners, box[4]) for corners, box in zip(sides.tolist(), boxes, strict=True))
    return relative, int((inside != given).any(axis=1).sum())
