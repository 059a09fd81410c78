"""Frequencies of layouts and branches: a few are very frequent, many occur once."""

import numpy as np

from benchmarks.receipts.randomness import stream

_EXPONENT = 1.25  # of Zipf's law among the common layouts
_RARE_SPACING = 20  # receipts a layout within which every rare layout has had its one receipt
_MOST_BRANCHES = 24


class Popularity:
    """Draws the layout of each receipt.

    The first layouts are common: a receipt has the k-th of them with a probability in proportion
    to (k + 1)^-1.25. Each of the others, a share of `single_share`, has exactly one receipt, at a
    place among the first 20 receipts a layout that depends on the seed. So a corpus of any
    length keeps layouts with a single receipt, and begins like every shorter one.
    """

    def __init__(self, *, layouts: int, seed: int, single_share: float = 1 / 3) -> None:
        rare = int(layouts * single_share)
        self.seed = seed
        self.common = layouts - rare
        places = stream(seed, "rare").permutation(_RARE_SPACING * layouts)[:rare]
        self.rare_by_place = {int(place): self.common + k for k, place in enumerate(places)}
        weights = (np.arange(self.common) + 1.0) ** -_EXPONENT
        self.cumulative = np.cumsum(weights) / weights.sum()

    def layout_of(self, index: int) -> int:
        """The layout of receipt number `index`: of the shop it comes from."""
        rare = self.rare_by_place.get(index)
        if rare is not None:
            return rare
        draw = stream(self.seed, "popularity", index).random()
        return min(int(np.searchsorted(self.cumulative, draw, side="right")), self.common - 1)

    def is_common(self, layout: int) -> bool:
        """Returns whether a layout may have more than one receipt."""
        return layout < self.common

    def branch_of(self, layout: int, rng: np.random.Generator) -> int:
        """One of the shops that use a layout; common layouts have more shops."""
        branches = max(1, round(_MOST_BRANCHES / np.sqrt(layout + 1)))
        return int(rng.integers(branches)) if self.is_common(layout) else 0
