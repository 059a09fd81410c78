"""Bins of numbers, narrow in proportion to the number: the same on every machine, in any order.

A float64 is a sign, an exponent and a mantissa, in this order from its highest bit on. Its bin is
what remains without the lowest 46 bits: the exponent and the first 6 bits of the mantissa. So there
are 64 bins from each power of two to the next, and no bin is wider than 1/64 (1.6 %) of its
numbers:

    number    bin        numbers of the bin
    100.0     65_892     100 to 101, without 101
    -100.0    -65_892    -101 to -100, without -101
    0.0       0          0, and what is nearer to it than 2**-1028
    3.0       65_568     3 to 3.03125; of whole numbers, 3 alone

Bins are numbered in the order of their numbers. A bin is a shift of bits, with nothing to be
rounded, so counts per bin are exact, and don't depend on which numbers came first. HdrHistogram
counts like this.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil, isfinite

_DROPPED_BITS = 46
_SIGN_ONLY = -1 << 63 - _DROPPED_BITS  # what remains of -0.0


def bins_of(numbers: Sequence[float]) -> list[int]:
    """Finds the bin of each number, which must be finite."""
    count = len(numbers)
    # As a signed integer, a float64 with the sign bit is -2**63 plus the bits of its magnitude.
    words = struct.unpack(f"<{count}q", struct.pack(f"<{count}d", *numbers))
    return [
        word >> _DROPPED_BITS if word >= 0 else _SIGN_ONLY - (word >> _DROPPED_BITS)
        for word in words
    ]


@dataclass(frozen=True, kw_only=True)
class Span:
    """Numbers that lie somewhere from `low` to `high`.

    Attributes:
      low, high: bounds of the numbers; the same for one number that comes several times.
      count: how many numbers there are; an estimate need not be whole.
    """

    low: float
    high: float
    count: float

    def below(self, bound: float) -> float:
        """Estimates how many of the numbers are below a bound."""
        if bound <= self.low:
            return 0.0
        if bound >= self.high:
            return float(self.count)
        # The fraction first: it is at most 1, so rounding makes no more numbers than there are.
        return self.count * ((bound - self.low) / (self.high - self.low))


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Numbers whose bins are known, taken to lie evenly in their bins.

    Attributes:
      counts: bin to how many numbers are in it; not empty.
      minimum, maximum: the least and the greatest number.
      whole: whether all are whole numbers, which small bins hold only one of.
    """

    counts: Mapping[int, int]
    minimum: float
    maximum: float
    whole: bool

    @property
    def total(self) -> int:
        """The number of numbers."""
        return sum(self.counts.values())

    def quantiles(self, parts: int) -> list[float]:
        """Estimates the bounds of equally many numbers, minimum and maximum included.

        A bound is in the bin of the exact quantile. Of the numbers 1, 2, 3 and 4, two parts have
        the bounds 1, 2 and 4.
        """
        spans = list(self._spans())
        ends = list(accumulate(self.counts[number] for number in sorted(self.counts)))
        bounds = [self.minimum]
        for part in range(1, parts):
            # In integers, which don't round: of 10 numbers, 3 / 4 are 30 of 40.
            rank = part * ends[-1]
            at = bisect_left(ends, rank, key=lambda end: end * parts)
            span = spans[at]
            inside = 1 - (ends[at] * parts - rank) / (span.count * parts)
            bounds.append(min(span.low + (span.high - span.low) * inside, span.high))
        return [*bounds, self.maximum]

    def equal_widths(self, parts: int) -> list[Span]:
        """Estimates how many numbers are in equal parts of the range from minimum to maximum.

        The counts add up to all numbers. They need not be whole: 3 numbers of a bin that two parts
        share may be 1.2 and 1.8. Where all numbers are equal, there is one part.
        """
        if self.minimum == self.maximum:
            return [Span(low=self.minimum, high=self.maximum, count=self.total)]
        width = (self.maximum - self.minimum) / parts
        inner = [self.minimum + width * part for part in range(1, parts)]
        bounds = [self.minimum, *inner, self.maximum]
        spans = list(self._spans())
        below = [sum(span.below(bound) for span in spans) for bound in inner]
        return [
            Span(low=low, high=high, count=end - start)
            for (low, high), (start, end) in zip(
                pairwise(bounds), pairwise([0.0, *below, float(self.total)]), strict=True
            )
        ]

    def _spans(self) -> Iterator[Span]:
        """Yields the numbers of each bin, in order, with bounds between minimum and maximum."""
        for number in sorted(self.counts):
            low, high = _bounds(abs(number), whole=self.whole)
            if number < 0:
                low, high = -high, -low
            yield Span(
                low=max(low, self.minimum),
                high=min(high, self.maximum),
                count=self.counts[number],
            )


def _bounds(number: int, *, whole: bool) -> tuple[float, float]:
    """Bounds of the numbers of a bin that is not negative."""
    if not number:
        return 0.0, 0.0
    words = struct.pack("<2q", number << _DROPPED_BITS, (number + 1) << _DROPPED_BITS)
    low, high = struct.unpack("<2d", words)
    # The whole numbers from 128.0 on, but below 130.0, are 128 and 129. From 2**53 on, all float64
    # are whole, and the bound less 1 is the bound.
    return (float(ceil(low)), float(ceil(high)) - 1) if whole and isfinite(high) else (low, high)
