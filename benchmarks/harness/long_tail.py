"""Layouts as they come: a few very common, most very rare."""

import numpy as np
import numpy.typing as npt


def long_tail(rng: np.random.Generator, records: int, *, layouts: int) -> npt.NDArray[np.int64]:
    """Layouts of some records, 0 to `layouts` - 1, by Zipf's law: int64 [records]."""
    weights = 1 / np.arange(1, layouts + 1)
    edges = np.cumsum(weights / weights.sum())
    return np.minimum(np.searchsorted(edges, rng.random(records)), layouts - 1)
