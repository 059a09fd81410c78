"""The split of each receipt: pure arithmetic, no Beam.

Within every layout each split gets its share rounded down or up; a layout with a single receipt
goes to the home split. The receipts of a group stay together; where that makes the shares
impossible, the shares are relaxed.
"""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
SplitArray = npt.NDArray[np.int16]  # positions of splits, -1 for none yet
MAX_SPLITS = 1000
_GROUPS_AT_ONCE = 1 << 16  # of which Python holds numbers at a time, in ten times the memory


def parse_fractions(text: str) -> dict[str, float]:
    """Reads `train=0.9,validation=0.1`.

    Raises:
      ValueError: a name or number is malformed, there are too many splits, or the fractions do
        not add up to 1.
    """
    fractions: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in fractions:
            raise ValueError(
                f"split {part!r} needs a unique name in lower-case letters, digits and "
                "underscores: write for example train=0.9,validation=0.1"
            )
        try:
            fractions[name] = float(number)
        except ValueError:
            raise ValueError(f"split {part!r} needs a fraction, as in {name}=0.9") from None
        if not 0 < fractions[name] <= 1:
            raise ValueError(
                f"the fraction of split {name} must be above 0 and at most 1, got {number}"
            )
    if len(fractions) > MAX_SPLITS:
        raise ValueError(f"a dataset has at most {MAX_SPLITS:,} splits, got {len(fractions):,}")
    total = sum(fractions.values())
    if abs(total - 1) > 1e-9:
        raise ValueError(f"split fractions must add up to 1, {text!r} adds up to {total:g}")
    return fractions


def check_fractions(fractions: Mapping[str, float]) -> None:
    """Raises the ValueError of `parse_fractions` for fractions given as a mapping."""
    parse_fractions(",".join(f"{name}={share!r}" for name, share in fractions.items()))


def home_split(names: list[str]) -> int:
    """Position of the split that single receipts go to: `train`, else the first."""
    return names.index("train") if "train" in names else 0


def assign_groups(
    group: npt.NDArray[np.uint64],
    layout: npt.NDArray[np.int32],
    count: npt.NDArray[np.int32],
    *,
    totals: IntArray,
    taken: IntArray,
    fractions: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.uint64], SplitArray]:
    """Assigns whole groups to splits, keeping every layout near its shares.

    Greedy, largest group first, each to the split in which it raises the squared relative
    deviation from the fair shares least: the heuristic of scikit-learn's StratifiedGroupKFold,
    with fractions.

    Args:
      group, layout, count: [n], `count` receipts of a layout in a group; one row per pair.
      totals: [layouts], receipts of each layout in the whole dataset.
      taken: [layouts, splits], receipts whose split is fixed already.
      fractions: [splits].

    Returns:
      The groups in ascending order and the split of each.
    """
    order = np.lexsort((layout, group))
    group, layout, count = group[order], layout[order], count[order]
    starts = np.flatnonzero(np.append(True, group[1:] != group[:-1])[: len(group)])
    sizes = np.add.reduceat(count, starts, dtype=np.int32) if len(starts) else count
    lengths = np.diff(starts, append=len(group))
    # For each split, a list with twice the receipts of each layout that it may still take. Adding c
    # receipts to a split that is short of r raises the squared deviation by (r - c)² - r², which is
    # c · (c - 2r): with 2r at hand, `_choose` needs one subtraction and one product.
    fair = totals[:, None] * fractions[None, :]
    room = (2 * (fair - taken)).T.tolist()
    weight = (1 / np.maximum(fair, 1e-12)).T.tolist()
    chosen = np.zeros(len(starts), np.int16)
    largest_first = np.argsort(-sizes, kind="stable")
    for turn in range(0, len(starts), _GROUPS_AT_ONCE):
        groups = largest_first[turn : turn + _GROUPS_AT_ONCE]
        # The rows of these groups, group by group. Of groups that start at rows 7 and 2 and have 2
        # and 3 rows, the ends are 2 and 5; 7 + 2 - 2 = 7 and 2 + 3 - 5 = 0, repeated to 7 7 0 0 0,
        # plus 0 1 2 3 4 are the rows 7 8 2 3 4.
        ends = np.cumsum(lengths[groups])
        rows = np.repeat(starts[groups] + lengths[groups] - ends, lengths[groups])
        rows += np.arange(len(rows))
        pairs = list(zip(layout[rows].tolist(), count[rows].tolist(), strict=True))
        chosen[groups] = _choose(pairs, ends.tolist(), room, weight)
    return group[starts], chosen


def _choose(
    pairs: Sequence[tuple[int, int]],
    ends: Sequence[int],
    room: Sequence[list[float]],
    weight: Sequence[list[float]],
) -> list[int]:
    """Chooses a split for each group, one after the other, and takes its receipts off the room.

    Plain Python: every choice depends on the one before, and sums of two or three numbers are
    slower in NumPy.

    Args:
      pairs: (layout, receipts) of all groups, one group after the other.
      ends: end of each group in `pairs`.
      room: for each split, twice the receipts of each layout that it may still take.
      weight: for each split, what a receipt of each layout weighs.
    """
    splits = [(split, room[split], weight[split]) for split in range(len(room))]
    chosen = []
    start = 0
    for end in ends:
        group = pairs[start:end]
        start = end
        best, lowest_cost = 0, math.inf
        for split, left, weights in splits:
            cost = 0.0
            for layout, count in group:
                cost += count * (count - left[layout]) * weights[layout]
            if cost < lowest_cost:
                best, lowest_cost = split, cost
        left = room[best]
        for layout, count in group:
            left[layout] -= 2 * count
        chosen.append(best)
    return chosen


def quotas(
    free: IntArray,
    taken: IntArray,
    *,
    fractions: npt.NDArray[np.float64],
    home: int,
) -> IntArray:
    """Shares each layout's free receipts out to the splits.

    Every layout's shares are rounded down or up, in such a way that the rounding errors of the
    layouts cancel out, so the totals of the splits come out right as well. Of three layouts of 5
    receipts and fractions of 0.9 and 0.1, each wants 4.5 and 0.5. The first gets 5 and 0; the
    second, as the error is now -0.5 and 0.5, gets 4 and 1; the third again 5 and 0.

    Args:
      free: [layouts], receipts that may go anywhere.
      taken: [layouts, splits], receipts whose split is fixed by their group.
      fractions: [splits].
      home: split of a layout's only receipt.

    Returns:
      int64 [layouts, splits]; rows add up to `free`.
    """
    result = np.zeros((len(free), len(fractions)), np.int64)
    totals = free + taken.sum(axis=1)
    result[(free > 0) & (totals == 1), home] = 1
    shared = np.flatnonzero((free > 0) & (totals > 1))
    wanted = np.maximum(totals[shared, None] * fractions - taken[shared], 0)
    wanted *= (free[shared] / wanted.sum(axis=1))[:, None]
    floor = np.floor(wanted + 1e-9)  # 100 · 0.29 is 28.999999999999996
    left = (free[shared] - floor.sum(axis=1)).astype(np.int64).tolist()
    part = wanted - floor
    error = np.zeros(len(fractions))  # receipts wanted and not given so far, by split
    for row, extra in enumerate(left):
        if extra:
            # Only a share that is not whole may be rounded up: else it would be off by 1 or more.
            preference = np.where(part[row] > 1e-9, part[row] + error, -np.inf)
            floor[row, np.argsort(-preference, kind="stable")[:extra]] += 1
        error += wanted[row] - floor[row]
    result[shared] = floor
    return result


def deviations(counts: IntArray, fractions: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """|count - share| of each layout in each split, [layouts, splits]; 0 for single receipts."""
    totals = counts.sum(axis=1, keepdims=True)
    return np.where(totals == 1, 0.0, np.abs(counts - totals * fractions))
