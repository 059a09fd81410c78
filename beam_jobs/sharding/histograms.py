"""Counts of the records with each value of a category, added up without a table of all shards."""

from collections.abc import Iterable, Sequence
from functools import reduce

import apache_beam as beam
import numpy as np
import numpy.typing as npt

from beam_jobs.errors import TRY_AGAIN, BuildError
from beam_jobs.sharding.splits import IntArray
from beam_jobs.shown import shown


class Histogram(beam.CombineFn):
    """Arrays of codes to the number of occurrences of each code: int64 [largest code + 1]."""

    def create_accumulator(self) -> IntArray:
        return np.zeros(0, np.int64)

    def add_input(self, histogram: IntArray, codes: npt.NDArray[np.int32]) -> IntArray:
        return _sum(histogram, np.bincount(codes))

    def merge_accumulators(self, histograms: Iterable[IntArray]) -> IntArray:
        return reduce(_sum, histograms, self.create_accumulator())

    def extract_output(self, histogram: IntArray) -> IntArray:
        return histogram


def check_layouts(
    shard: str, codes: npt.NDArray[np.int32], *, expected: IntArray, layouts: Sequence[str]
) -> None:
    """Checks that a shard holds the records of each layout that the plan gives it.

    Args:
      shard: the shard's name.
      codes: the layout of each of its records, as a position in `layouts`.
      expected: int64 [layouts], records of each layout.
      layouts: the names of all layouts.

    Raises:
      BuildError: the shard holds other records.
    """
    counts = np.bincount(codes, minlength=len(layouts))
    for code in np.flatnonzero(counts != expected)[:1].tolist():
        raise BuildError(
            f"{shard} holds {counts[code]} records of layout {shown(layouts[code])}, but the plan "
            f"gives it {expected[code]}: {TRY_AGAIN}"
        )


def _sum(one: IntArray, other: IntArray) -> IntArray:
    """Adds the shorter histogram to the longer one, in place."""
    # Each ends at the largest code that its part of the records has.
    longer, shorter = sorted((one, other), key=len, reverse=True)
    longer[: len(shorter)] += shorter
    return longer
