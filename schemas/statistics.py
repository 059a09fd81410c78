"""Statistics of records, gathered part by part: the same in any order of records and parts.

That needs sums that don't round. A sum is an integer, in units of 2**-300: float32 has no number
nearer to 0 than 2**-149, whose square is 2**-298. So 1.5 is counted as 3 * 2**299.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import Any, Self

from schemas.bins import Distribution, bins_of

_UNIT_BITS = 300
_UNITS = 2.0**_UNIT_BITS


@dataclass(kw_only=True, slots=True)
class FeatureSummary:
    """Statistics of one feature over some records.

    Attributes:
      records: records seen.
      values, min_values, max_values: number of values, in all records and at least and at most in
        one.
      not_finite: values that are NaN or infinite. Builds reject them, as no loss survives them; the
        attributes below leave them out.
      sum, sum_of_squares: of the values, in units of 2**-300; of bytes and strings, of their
        lengths in bytes.
      minimum, maximum, zeros: of the same numbers; infinity and -infinity of none.
      bins: `schemas.bins` to the number of values in it; none of bytes and strings.
    """

    records: int = 0
    values: int = 0
    min_values: int = 0
    max_values: int = 0
    not_finite: int = 0
    sum: int = 0
    sum_of_squares: int = 0
    minimum: float = math.inf
    maximum: float = -math.inf
    zeros: int = 0
    bins: Counter[int] = field(default_factory=Counter)

    def add(self, values: Sequence[Any]) -> None:
        """Counts one record's values: numbers, or bytes."""
        count = len(values)
        self._merge_counts(count, count, count, records=1)
        if not values:
            return
        if isinstance(values[0], bytes):
            self._add_numbers([len(value) for value in values])
            return
        numbers = values
        # A sum of finite float32 is finite. This is cheaper than to look at each.
        if not math.isfinite(sum(values)):
            numbers = [value for value in values if math.isfinite(value)]
            self.not_finite += count - len(numbers)
        if numbers:
            self._add_numbers(numbers)
            self.bins.update(bins_of(numbers))

    def merge(self, other: Self) -> None:
        """Adds the records that another summary has seen."""
        if not other.records:
            return
        self._merge_counts(other.values, other.min_values, other.max_values, records=other.records)
        self.not_finite += other.not_finite
        self.sum += other.sum
        self.sum_of_squares += other.sum_of_squares
        self.minimum = min(self.minimum, other.minimum)
        self.maximum = max(self.maximum, other.maximum)
        self.zeros += other.zeros
        self.bins.update(other.bins)

    @property
    def finite(self) -> int:
        """Number of values that sums, minimum, maximum and bins are of."""
        return self.values - self.not_finite

    @property
    def mean(self) -> float:
        """Mean of the finite values, the nearest float64; 0 of none."""
        # Integers of any size divide to the nearest float64.
        return self.sum / (self.finite << _UNIT_BITS) if self.finite else 0.0

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of the finite values, which are all there are; 0 of none."""
        if not self.finite:
            return 0.0
        # n * the sum of squares less the square of the sum, in units of 2**-600. In floating point
        # a small difference of large numbers would be lost. Below 0 it is where the squares of one
        # record's values were rounded.
        difference = (self.finite * self.sum_of_squares << _UNIT_BITS) - self.sum**2
        return math.sqrt(max(difference, 0) / (self.finite**2 << 2 * _UNIT_BITS))

    def distribution(self, *, whole: bool) -> Distribution | None:
        """Distribution of the finite values, `whole` for integers; None where there is none."""
        if not self.bins:
            return None
        return Distribution(
            counts=self.bins, minimum=self.minimum, maximum=self.maximum, whole=whole
        )

    def _add_numbers(self, numbers: Sequence[float]) -> None:
        # fsum gives the same sum in any order. A power of two changes no digit.
        self.sum += int(math.fsum(numbers) * _UNITS)
        self.sum_of_squares += int(math.fsum(map(mul, numbers, numbers)) * _UNITS)
        # -0.0 + 0.0 is 0.0: of two equal zeros, the order would decide which one is the minimum.
        self.minimum = min(self.minimum, float(min(numbers)) + 0.0)
        self.maximum = max(self.maximum, float(max(numbers)) + 0.0)
        self.zeros += numbers.count(0)

    def _merge_counts(self, values: int, low: int, high: int, *, records: int) -> None:
        # The 0 that a summary starts with is not a record's number of values.
        self.min_values = min(self.min_values, low) if self.records else low
        self.max_values = max(self.max_values, high)
        self.values += values
        self.records += records


@dataclass(kw_only=True)
class RecordSummary:
    """Statistics of all features over some records."""

    features: dict[str, FeatureSummary] = field(default_factory=dict)

    def add(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Counts one record, given as `schemas.example.parse_example` gives it."""
        for name, items in values.items():
            if name not in self.features:
                self.features[name] = FeatureSummary()
            self.features[name].add(items)

    @classmethod
    def merged(cls, parts: Iterable[Self]) -> Self:
        """Adds up several summaries, in any order."""
        total = cls()
        for part in parts:
            for name, summary in part.features.items():
                total.features.setdefault(name, FeatureSummary()).merge(summary)
        return total
