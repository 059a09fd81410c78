"""Statistics of records, gathered shard by shard and merged in the shards' order."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import Any, Self


@dataclass(kw_only=True, slots=True)
class FeatureSummary:
    """Statistics of one feature over some records.

    Attributes:
      records: records seen.
      values, min_values, max_values: number of values, in all records and at least and at most in
        one.
      sum, sum_of_squares, minimum, maximum, zeros: of the values; of bytes and strings, of their
        lengths in bytes.
    """

    records: int = 0
    values: int = 0
    min_values: int = 0
    max_values: int = 0
    sum: float = 0.0
    sum_of_squares: float = 0.0
    minimum: float = math.inf
    maximum: float = -math.inf
    zeros: int = 0

    def add(self, values: Sequence[Any]) -> None:
        """Counts one record's values: numbers, or bytes."""
        numbers = values
        if values and isinstance(values[0], bytes):
            numbers = [len(value) for value in values]
        self._merge_counts(len(numbers), len(numbers), len(numbers), records=1)
        if numbers:
            self.sum += math.fsum(numbers)
            self.sum_of_squares += math.fsum(map(mul, numbers, numbers))
            self.minimum = min(self.minimum, float(min(numbers)))
            self.maximum = max(self.maximum, float(max(numbers)))
            self.zeros += numbers.count(0)

    def merge(self, other: Self) -> None:
        """Adds the records that another summary has seen."""
        if not other.records:
            return
        self._merge_counts(other.values, other.min_values, other.max_values, records=other.records)
        self.sum += other.sum
        self.sum_of_squares += other.sum_of_squares
        self.minimum = min(self.minimum, other.minimum)
        self.maximum = max(self.maximum, other.maximum)
        self.zeros += other.zeros

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
        """Adds up several summaries; floating-point sums depend on their order."""
        total = cls()
        for part in parts:
            for name, summary in part.features.items():
                total.features.setdefault(name, FeatureSummary()).merge(summary)
        return total
