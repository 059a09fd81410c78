"""Which receipts go to which split: pure arithmetic, no Beam.

Within every layout each split gets its share rounded down or up; a layout with a single receipt
goes to the home split; the receipts of a group stay together, and where that makes the shares
impossible the shares give way.
"""

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def parse_fractions(text: str) -> dict[str, float]:
    """Reads `train=0.9,validation=0.1`.

    Raises:
      ValueError: a name or number is malformed, or the fractions do not add up to 1.
    """
    fractions: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in fractions:
            raise ValueError(
                f"split {part!r} needs a name of its own in lower-case letters, digits and "
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
    count: IntArray,
    *,
    totals: IntArray,
    fractions: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int8]]:
    """Puts whole groups into splits, keeping every layout near its shares.

    Greedy, largest group first, each to the split in which it raises the squared relative
    deviation from the fair shares least: the heuristic of scikit-learn's StratifiedGroupKFold,
    with fractions.

    Args:
      group, layout, count: [n], `count` receipts of a layout in a group; one row a pair.
      totals: [layouts], receipts of each layout in the whole dataset.
      fractions: [splits].

    Returns:
      The groups in ascending order and the split of each.
    """
    groups, position = np.unique(group, return_inverse=True)
    sizes = np.zeros(len(groups), np.int64)
    np.add.at(sizes, position, count)
    order = np.argsort(position, kind="stable")
    starts = np.searchsorted(position[order], np.arange(len(groups) + 1)).tolist()
    layouts, counts = layout[order].tolist(), count[order].tolist()
    # What a split may still take of a layout; per layout a row of splits.
    fair = totals[:, None] * fractions[None, :]
    room = fair.tolist()
    weight = (1 / np.maximum(fair, 1e-12)).tolist()
    chosen = np.zeros(len(groups), np.int8)
    splits = range(len(fractions))
    for number in np.lexsort((groups, -sizes)).tolist():
        pairs = range(starts[number], starts[number + 1])
        costs = [
            sum(
                counts[pair]
                * (counts[pair] - 2 * room[layouts[pair]][split])
                * weight[layouts[pair]][split]
                for pair in pairs
            )
            for split in splits
        ]
        best = min(splits, key=costs.__getitem__)
        chosen[number] = best
        for pair in pairs:
            room[layouts[pair]][best] -= counts[pair]
    return groups, chosen


def quotas(
    free: IntArray,
    taken: IntArray,
    *,
    fractions: npt.NDArray[np.float64],
    home: int,
) -> IntArray:
    """How many of each layout's free receipts each split gets.

    Every layout's shares are rounded down or up; which way is chosen so that the rounding errors
    of the layouts cancel out, and the splits' totals come out right as well.

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
    error = np.zeros(len(fractions))
    for layout in np.flatnonzero(free).tolist():
        if totals[layout] == 1:
            result[layout, home] = 1
            continue
        wanted = np.maximum(fractions * totals[layout] - taken[layout], 0)
        wanted *= free[layout] / wanted.sum()
        floor = np.floor(wanted + 1e-9)
        left = int(free[layout] - floor.sum())
        part = wanted - floor
        preference = np.where(part > 1e-9, part + error, -np.inf)
        floor[np.argsort(-preference, kind="stable")[:left]] += 1
        error += wanted - floor
        result[layout] = floor
    return result


def deviations(counts: IntArray, fractions: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """|count - share| of each layout in each split, [layouts, splits]; 0 for single receipts."""
    totals = counts.sum(axis=1, keepdims=True)
    return np.where(totals == 1, 0.0, np.abs(counts - totals * fractions))
