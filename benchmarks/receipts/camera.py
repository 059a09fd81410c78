"""The camera's view of the paper: a homography, applied to points and boxes.

Coordinates are continuous: pixel i spans i to i + 1, as Pillow's transforms have it.
"""

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
Matrix = NDArray[np.float64]

_CORNERS = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=np.float64)


def rectangle(xmin: float, ymin: float, xmax: float, ymax: float) -> Points:
    """The corners, clockwise from the top left: float64 [4, 2]."""
    low, high = np.array([xmin, ymin]), np.array([xmax, ymax])
    corners: Points = low + _CORNERS * (high - low)
    return corners


def homography(width: float, height: float, corners: Points) -> Matrix:
    """The 3×3 matrix that maps a sheet to its corners in the image.

    Solved by hand (Heckbert, "Fundamentals of texture mapping", 1989): a call of LAPACK would
    start a pool of threads in every process.

    Args:
      width: of the sheet, which lies at the origin.
      height: of the sheet.
      corners: float64 [4, 2], clockwise from the sheet's top left.
    """
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = corners.tolist()
    dx1, dx2, dx3 = x1 - x2, x3 - x2, x0 - x1 + x2 - x3
    dy1, dy2, dy3 = y1 - y2, y3 - y2, y0 - y1 + y2 - y3
    area = dx1 * dy2 - dx2 * dy1
    g, h = (dx3 * dy2 - dx2 * dy3) / area, (dx1 * dy3 - dx3 * dy1) / area
    unit_square = np.array(
        [
            [x1 - x0 + g * x1, x3 - x0 + h * x3, x0],
            [y1 - y0 + g * y1, y3 - y0 + h * y3, y0],
            [g, h, 1.0],
        ]
    )
    matrix: Matrix = unit_square / np.array([width, height, 1.0])
    return matrix


def inverse(matrix: Matrix) -> Matrix:
    """The homography that undoes another one; its last element is 1."""
    a, b, c = matrix
    adjugate = np.stack([np.cross(b, c), np.cross(c, a), np.cross(a, b)], axis=1)
    normalized: Matrix = adjugate / adjugate[2, 2]
    return normalized


def project(matrix: Matrix, points: Points) -> Points:
    """Points, float64 [..., 2], through a homography."""
    lifted = points @ matrix[:, :2].T + matrix[:, 2]
    projected: Points = lifted[..., :2] / lifted[..., 2:]
    return projected


def project_boxes(matrix: Matrix, boxes: Points) -> Points:
    """Bounds of the boxes' projected corners; boxes are float64 [n, 4]."""
    corners = boxes[:, [[0, 1], [2, 1], [2, 3], [0, 3]]]
    return bounds(project(matrix, corners))


def bounds(points: Points) -> Points:
    """xmin, ymin, xmax, ymax of each group of points: float64 [..., n, 2] to [..., 4]."""
    return np.concatenate([points.min(axis=-2), points.max(axis=-2)], axis=-1)


def tilted(width: float, height: float, *, angle: float, tilt: tuple[float, float]) -> Points:
    """A sheet's corners as a pinhole camera sees them, turned and tilted.

    Args:
      width: of the sheet, in any unit.
      height: of the sheet.
      angle: turn within the image, degrees.
      tilt: turn about the image's vertical and horizontal axis, degrees.

    Returns:
      float64 [4, 2], clockwise from the sheet's top left; about the size of the sheet.
    """
    turn, yaw, pitch = np.deg2rad([angle, *tilt])
    x, y = (rectangle(0, 0, width, height) - (width / 2, height / 2)).T
    x, y = np.cos(turn) * x - np.sin(turn) * y, np.sin(turn) * x + np.cos(turn) * y
    depth = x * np.sin(yaw) + y * np.sin(pitch)
    x, y = x * np.cos(yaw), y * np.cos(pitch)
    distance = 2.4 * max(width, height)
    corners: Points = np.stack([x, y], axis=1) * (distance / (distance + depth))[:, None]
    return corners
