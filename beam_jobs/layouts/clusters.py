"""Clusters of descriptors, and the nearest one of each descriptor.

Descriptors and centroids are int8 vectors whose products are less than 2**24: at most 1,040 values
up to 127, 2,048 up to 90, or 4,096 up to 63. Float32 holds every such sum exactly, in any order. So
a matrix product of floats, which is fast, gives the same numbers on any processor, and the same
receipts get the same layouts on any worker.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from schemas.layout_centroids import Descriptors

_MAX_PRODUCT = 1 << 24
_ROWS_AT_ONCE = 512
_CELLS_AT_ONCE = 1 << 24  # of a matrix of similarities: 128 MiB

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def max_value(size: int) -> int:
    """Returns the largest value that descriptors of a size may have, from 0 to 127."""
    return min(127, math.isqrt((_MAX_PRODUCT - 1) // max(1, size)))


def cluster(
    descriptors: Descriptors, *, max_distance: float, max_joined_distance: float | None = None
) -> Descriptors:
    """Finds clusters by average linkage (Sokal and Michener 1958) of cosine distances.

    Where descriptors are noisy, those of a common layout fall into several clusters: the distance
    of two receipts hardly tells whether they are of one layout. The mean of fifty is less noisy. So
    clusters may be joined in turn, by the distances of their centroids.

    Example: two receipts of a layout are at a distance of 0.9 and two others at 1.0, give or take
    0.1. The centroids of twenty receipts each are at 0.3 and at 1.0.

    Args:
      descriptors: int8 [n, size], none of them zeros only. Takes some 8 n² bytes of memory.
      max_distance: the mean cosine distance between two clusters up to which they are joined.
      max_joined_distance: the mean cosine distance between the centroids of clusters up to which
        these are joined afterwards; None to leave them as they are.

    Returns:
      The centroid of each cluster, int8 [clusters, size]: the largest cluster first, of equally
      large ones that with the first descriptor.
    """
    if not len(descriptors):
        return descriptors
    if len(descriptors) == 1:
        return _centroids(descriptors, np.zeros(1, np.int64))
    labels = _linked(descriptors, max_distance)
    if max_joined_distance is not None and labels.any():
        labels = _linked(_centroids(descriptors, labels), max_joined_distance)[labels]
    _, first, label, count = np.unique(
        labels, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.lexsort((first, -count))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return _centroids(descriptors, rank[label])


def _linked(descriptors: Descriptors, max_distance: float) -> IntArray:
    """Labels two or more descriptors with their clusters, from 0 up."""
    # Imported here, as it takes half a second that only one worker of one kind of build needs.
    from scipy.cluster.hierarchy import fcluster, linkage

    tree = linkage(_distances(descriptors), "average")
    return fcluster(tree, max_distance, "distance").astype(np.int64) - 1


def nearest(
    descriptors: Descriptors, centroids: Descriptors, *, max_distance: float
) -> tuple[IntArray, FloatArray]:
    """Finds the centroid that is nearest to each descriptor.

    Args:
      descriptors: int8 [n, size].
      centroids: int8 [clusters, size].
      max_distance: cosine distance above which none is near.

    Returns:
      The number of the centroid, -1 for none, and the cosine similarity to it; [n] each.
    """
    number = np.full(len(descriptors), -1, np.int64)
    best = np.zeros(len(descriptors))
    if not len(centroids):
        return number, best
    wide = _Wide.of(centroids)
    rows = max(1, min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // len(centroids)))
    for start in range(0, len(descriptors), rows):
        part = slice(start, start + rows)
        similarities = _Wide.of(descriptors[part]).similarities(wide)
        number[part] = similarities.argmax(axis=1)
        best[part] = similarities.max(axis=1)
    number[best < 1 - max_distance] = -1
    return number, best


def _distances(descriptors: Descriptors) -> FloatArray:
    """Cosine distance of each pair, in SciPy's order: 0 and 1, 0 and 2, …, 1 and 2, and so on."""
    count, end = len(descriptors), 0
    distances = np.empty(count * (count - 1) // 2)
    wide = _Wide.of(descriptors)
    for start in range(0, count, _ROWS_AT_ONCE):
        block = 1 - wide.take(slice(start, start + _ROWS_AT_ONCE)).similarities(
            wide.take(slice(start, None))
        )
        for row, own in enumerate(block):
            others = own[row + 1 :]
            distances[end : end + len(others)] = others
            end += len(others)
    # The rounding of a root may leave a distance below 0.
    return np.maximum(distances, 0, out=distances)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Wide:
    """Descriptors as float32 [n, size], and their norms, float64 [n]: 1 of one of zeros only."""

    values: npt.NDArray[np.float32]
    norms: FloatArray

    @classmethod
    def of(cls, descriptors: Descriptors) -> Self:
        values = descriptors.astype(np.float32)
        largest, limit = np.abs(values).max(initial=0), max_value(descriptors.shape[1])
        if largest > limit:
            raise ValueError(
                f"descriptors of {descriptors.shape[1]} values must be within ±{limit}, got "
                f"{largest:.0f}"
            )
        squares = np.einsum("ij,ij->i", values, values).astype(np.float64)
        return cls(values=values, norms=np.maximum(np.sqrt(squares), 1.0))

    def take(self, rows: slice) -> Self:
        return replace(self, values=self.values[rows], norms=self.norms[rows])

    def similarities(self, other: Self) -> FloatArray:
        """Cosine of each pair, float64 [n, others]; 0 where one of them is zeros only."""
        products = (self.values @ other.values.T).astype(np.float64)
        products /= self.norms[:, None]
        products /= other.norms
        return products


def _centroids(descriptors: Descriptors, label: IntArray) -> Descriptors:
    """Mean of the descriptors of each label, scaled to the largest value that is allowed."""
    sums = np.zeros((int(label.max()) + 1, descriptors.shape[1]), np.int64)
    np.add.at(sums, label, descriptors.astype(np.int64))
    largest = np.abs(sums).max(axis=1, keepdims=True)
    limit = max_value(descriptors.shape[1])
    return np.rint(sums * limit / np.maximum(largest, 1)).astype(np.int8)
