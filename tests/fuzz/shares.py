"""Shares of an epoch by water filling: arithmetic of its own, in floating point."""

from collections.abc import Mapping, Sequence

Alphas = Sequence[tuple[float, int]]


def shares(
    counts: Mapping[str, int], *, slots: int, alpha: float, repeat_cap: float
) -> dict[str, float]:
    """Divides the slots of an epoch among layouts in proportion to count ** alpha.

    A layout whose records would come more than `repeat_cap` times is held at that level, and the
    others share what it leaves, again and again.

    Args:
      counts: records of each layout.
      slots: places of the epoch, its steps times the global batch size.
      alpha: exponent.
      repeat_cap: most times that a record comes, on average over its layout.
    """
    # A batch larger than the split repeats every record.
    cap = max(repeat_cap, slots / sum(counts.values()))
    held: dict[str, float] = {}
    while True:
        free = {name: count**alpha for name, count in counts.items() if name not in held}
        water = slots - sum(held.values())
        filled = {name: water * weight / sum(free.values()) for name, weight in free.items()}
        above = [name for name, share in filled.items() if share > cap * counts[name] + 1e-9]
        if not above:
            return held | filled
        held |= {name: cap * counts[name] for name in above}


def alpha_at(phases: Alphas, step: int) -> float:
    """Returns the alpha of the last phase that has begun at a step."""
    return [alpha for alpha, first_step in phases if first_step <= step][-1]
