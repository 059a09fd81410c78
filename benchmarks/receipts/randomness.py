"""Independent random streams, so that no draw depends on how work was divided."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def stream(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """A generator that depends on its arguments only, and on no other stream.

    Args:
      seed: the corpus's seed, 0 or more.
      purpose: names the stream, e.g. "layout"; two purposes never share draws.
      indices: which layout, branch or receipt.
    """
    return np.random.default_rng([seed, *purpose.encode(), *indices])


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    """One of the options, each as likely."""
    return options[int(rng.integers(len(options)))]


def pick_weighted(rng: np.random.Generator, weights: dict[T, float]) -> T:
    """One of the keys, in proportion to its weight."""
    totals = np.cumsum(list(weights.values()))
    place = int(np.searchsorted(totals, rng.random() * totals[-1], side="right"))
    return list(weights)[min(place, len(weights) - 1)]


def chance(rng: np.random.Generator, probability: float) -> bool:
    """True with the given probability."""
    return bool(rng.random() < probability)
