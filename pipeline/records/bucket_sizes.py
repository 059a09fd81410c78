"""Sizes of buckets: chosen from the records' heights and widths, and the bucket of each record.

An image of 600 × 200 pixels, three times as high as wide, fills two thirds of a frame whose height
is twice its width: the ratios 3 and 2 differ by a factor of 3/2. So a record belongs to the bucket
whose ratio is nearest by factors, and the share of a frame that it fills is their quotient.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.config import Size
from pipeline.records.info import DatasetInfo
from pipeline.records.table import read_index

FloatArray = npt.NDArray[np.float64]

# Ratios of height to width are counted in this fraction; those above the highest one count as it.
_RATIO_PARTS = 4096
_MAX_RATIO = 64
# Pixels. Nets that halve an image four or five times need sides that are multiples of 16 or 32.
_UNIT, _SMALL_UNIT = 32, 16
_SMALL_AREA = 256 * 256


def find_bucket(
    sizes: Sequence[Size],
    height: npt.NDArray[np.signedinteger[Any]],
    width: npt.NDArray[np.signedinteger[Any]],
) -> npt.NDArray[np.int64]:
    """Finds the bucket of each record: that whose ratio of height to width is nearest by factors.

    Args:
      sizes: (height, width) of the buckets, by ascending ratio.
      height: pixels, integers [n].
      width: pixels, integers [n].

    Returns:
      int64 [n].
    """
    ratios = _ratios(sizes)
    # A ratio between two of them belongs to the lower one if it is below their geometric mean. All
    # processors round roots and quotients alike, so all workers find the same buckets.
    return np.searchsorted(np.sqrt(ratios[1:] * ratios[:-1]), height / width, side="right")


def bucket_sizes(
    info: DatasetInfo, buckets: int | tuple[Size, ...], *, height: int, width: int
) -> tuple[Size, ...]:
    """Returns the sizes of the buckets of a dataset, by ascending ratio of height to width.

    Args:
      info: the dataset. With a number of buckets, all of its splits count, so that training and
        evaluation have the same sizes.
      buckets: their sizes, or their number, see `choose_sizes`.
      height: with a number, the sizes have about the area of `height` × `width`.
      width: see `height`.
    """
    if isinstance(buckets, tuple):
        return tuple(sorted(buckets, key=lambda size: size[0] / size[1]))
    return choose_sizes(count_ratios(info), buckets, height=height, width=width)


def count_ratios(info: DatasetInfo) -> npt.NDArray[np.int64]:
    """Counts the records of all splits by ratio of height to width, for `choose_sizes`."""
    counts = np.zeros(_MAX_RATIO * _RATIO_PARTS + 1, np.int64)
    for split in info.manifest.splits:
        if info.records(split):
            files, columns = read_index(info, split, {"height": np.int32, "width": np.int32})
            # Shard by shard: arrays of int64 for all records at once would take much memory.
            for start, end in zip([0, *files["shard_ends"]], files["shard_ends"], strict=False):
                of_shard = (columns[side][start:end].astype(np.int64) for side in columns)
                counts += ratio_counts(*of_shard)
    return counts


def ratio_counts(
    height: npt.NDArray[np.int64], width: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Counts images by ratio of height to width, in steps of 1/4096 up to 64."""
    parts = np.minimum(height * _RATIO_PARTS // width, _MAX_RATIO * _RATIO_PARTS)
    return np.bincount(parts, minlength=_MAX_RATIO * _RATIO_PARTS + 1)


def choose_sizes(
    ratio_counts: npt.NDArray[np.int64], count: int, *, height: int, width: int
) -> tuple[Size, ...]:
    """Chooses the sizes of which padded images fill the largest share, on average over records.

    Candidates are sizes whose sides are multiples of 32 pixels, and whose area is about `height` ×
    `width`; of 16 pixels if that is less than 256 × 256. The best `count` of them, of all choices,
    are found by dynamic programming: what the records between two neighboring chosen ratios fill
    does not depend on the other ones.

    Args:
      ratio_counts: records by ratio, of `count_ratios`.
      count: number of sizes.
      height: pixels.
      width: pixels.

    Returns:
      Sizes by ascending ratio; fewer than `count` if further ones would have no record.
    """
    bins = np.flatnonzero(ratio_counts)
    records, ratios = ratio_counts[bins], (bins + 0.5) / _RATIO_PARTS
    sizes = _candidates(height * width, ratios[0], ratios[-1])
    chosen = _best(_ratios(sizes), records, ratios, min(count, len(sizes)))
    wanted = [sizes[number] for number in chosen]
    # The middles of the bins stand for their records.
    parts = np.round(ratios * 2 * _RATIO_PARTS).astype(np.int64)
    used = np.unique(find_bucket(wanted, parts, np.full_like(parts, 2 * _RATIO_PARTS)))
    return tuple(wanted[number] for number in used)


def filled_share(ratio_counts: npt.NDArray[np.int64], sizes: Sequence[Size]) -> float:
    """Computes the share of a padded image that is no padding, on average over records."""
    bins = np.flatnonzero(ratio_counts)
    records, ratios = ratio_counts[bins], (bins + 0.5) / _RATIO_PARTS
    factors = ratios[:, None] / _ratios(sizes)
    share = np.minimum(factors, 1 / factors).max(axis=1)
    return float((records * share).sum() / records.sum())


def _ratios(sizes: Sequence[Size]) -> FloatArray:
    return np.array([height / width for height, width in sizes])


def _candidates(area: int, lowest: float, highest: float) -> list[Size]:
    """Lists sizes of about an area, by ascending ratio: from `lowest` to `highest`, and one beyond.

    With an area of 512 × 384 pixels some are 448 × 448, 480 × 416, 512 × 384 and 544 × 352.
    """
    unit = _UNIT if area >= _SMALL_AREA else _SMALL_UNIT
    longest = max(1, area // unit**2)  # in units; the other side is one unit then
    by_ratio: dict[tuple[int, int], Size] = {}
    for side in range(1, longest + 1):
        other = max(1, round(area / (side * unit * unit)))
        for size in ((side, other), (other, side)):
            # Of several sizes of one ratio, that with the nearest area.
            shared = math.gcd(*size)
            ratio = (size[0] // shared, size[1] // shared)
            known = by_ratio.setdefault(ratio, size)
            by_ratio[ratio] = min(
                known, size, key=lambda each: abs(math.prod(each) - area / unit**2)
            )
    sizes = sorted(by_ratio.values(), key=lambda size: size[0] / size[1])
    ratios = _ratios(sizes)
    first = max(0, int(np.searchsorted(ratios, lowest)) - 1)
    stop = int(np.searchsorted(ratios, highest)) + 1
    return [(height * unit, width * unit) for height, width in sizes[first:stop]]


def _best(
    candidates: FloatArray, records: npt.NDArray[np.int64], ratios: FloatArray, count: int
) -> list[int]:
    """Chooses the `count` candidates that maximize the filled shares, added up over all records.

    Args:
      candidates: ratios in ascending order, float64 [n].
      records: number of records of each ratio, int64 [m].
      ratios: in ascending order, float64 [m].
      count: at most n.

    Returns:
      Numbers of the candidates in ascending order.
    """
    # A record of ratio r fills r / c of a higher candidate c, and c / r of a lower one. So the sums
    # of r, and of 1 / r, over the records below each candidate tell what is filled. All sums are
    # made of the same operations in the same order everywhere, as workers must choose the same.
    sums = np.concatenate([[0], np.cumsum(records * ratios)])
    inverse_sums = np.concatenate([[0], np.cumsum(records / ratios)])
    below = np.searchsorted(ratios, candidates)
    means = np.sqrt(candidates[:, None] * candidates)
    middle = np.searchsorted(ratios, means)
    # Filled by the records between candidates i and j, [i, j] for i < j: those below the geometric
    # mean are in the bucket of i, and the others in that of j.
    lower = candidates[:, None] * (inverse_sums[middle] - inverse_sums[below][:, None])
    upper = (sums[below] - sums[middle]) / candidates
    between = np.where(np.tri(len(candidates), dtype=bool), -np.inf, lower + upper)
    # best[j]: most that the records below candidate j fill, if j is the last chosen one so far.
    best = sums[below] / candidates
    previous = []
    for _ in range(count - 1):
        totals = best[:, None] + between
        previous.append(np.argmax(totals, axis=0))
        best = totals.max(axis=0)
    above = candidates * (inverse_sums[-1] - inverse_sums[below])
    chosen = [int(np.argmax(best + above))]
    for numbers in reversed(previous):
        chosen.append(int(numbers[chosen[-1]]))
    return chosen[::-1]
