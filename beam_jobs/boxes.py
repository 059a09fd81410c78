"""Boxes follow their image: to fractions of the upright image, and into a padded one."""

from collections.abc import Sequence

import numpy as np

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
            f"box ({', '.join(f'{side:g}' for side in corners)}) {text!r} has no area inside the "
            f"image of {size[0]}×{size[1]} pixels",
        )
    x0, y0, x1, y1 = (inside / ends).T
    sides = {
        2: (1 - x1, y0, 1 - x0, y1),
        3: (1 - x1, 1 - y1, 1 - x0, 1 - y0),
        4: (x0, 1 - y1, x1, 1 - y0),
        5: (y0, x0, y1, x1),
        6: (1 - y1, x0, 1 - y0, x1),
        7: (1 - y1, 1 - x1, 1 - y0, 1 - x0),
        8: (y0, 1 - x1, y1, 1 - x0),
    }.get(orientation, (x0, y0, x1, y1))
    texts = [box[4] for box in boxes]
    relative = zip(*(side.tolist() for side in sides), texts, strict=True)
    return tuple(relative), int((inside != given).any(axis=1).sum())
