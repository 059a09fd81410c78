"""Connected components of a mask: letters, logos, sheets of paper."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Components:
    """Connected components of a mask, also over corners.

    Attributes:
      labels: int64 [height, width], the component of each pixel from 1 up; 0 outside of the mask.
      areas: int64 [n], in pixels; of component 1 first.
      boxes: int64 [n, 4], top, left, bottom and right; the last two are just outside.
    """

    labels: IntArray
    areas: IntArray
    boxes: IntArray


def components(mask: npt.NDArray[np.bool_]) -> Components:
    """Finds the connected components of a mask, bool [height, width]."""
    # Imported here, as it takes time that only workers of one kind of build need.
    from scipy.ndimage import find_objects, label

    labels, count = label(mask, np.ones((3, 3), int))
    boxes = [(y.start, x.start, y.stop, x.stop) for y, x in find_objects(labels)]
    return Components(
        labels=labels,
        areas=np.bincount(labels.ravel(), minlength=count + 1)[1:],
        boxes=np.array(boxes, np.int64).reshape(-1, 4),
    )
