"""The numbers that are printed on receipts, as hashes: what tells two purchases from each other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

import numpy as np
import numpy.typing as npt

MAX_NUMBERS = 256  # of one receipt: a kilobyte in its lookup


@dataclass(frozen=True, kw_only=True, eq=False)
class ReceiptNumbers:
    """Numbers of n receipts, in the order in which they are printed.

    Attributes:
      counts: int32 [n], how many numbers each receipt has.
      values: uint32 [counts.sum()], their hashes, one receipt after the other.
    """

    counts: npt.NDArray[np.int32]
    values: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.counts)

    @classmethod
    def of(cls, receipts: Sequence[Sequence[int]]) -> Self:
        """Makes them of the hashes of each receipt."""
        counts = np.array([len(one) for one in receipts], np.int32)
        values = np.fromiter(chain.from_iterable(receipts), np.uint32, int(counts.sum()))
        return cls(counts=counts, values=values)

    @classmethod
    def concatenate(cls, parts: Iterable[Self]) -> Self:
        """Joins the receipts of all parts."""
        parts = [cls.of([]), *parts]
        return cls(
            counts=np.concatenate([part.counts for part in parts]),
            values=np.concatenate([part.values for part in parts]),
        )

    def take(self, rows: npt.NDArray[Any]) -> Self:
        """Returns some receipts, by their positions or a mask."""
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        counts = self.counts[rows]
        # Receipts with 2, 3 and 1 numbers start at 0, 2 and 5. Of the rows 2 and 0, the numbers
        # are at 5 and at 0 1: each row's start, and 0 1 2 … behind it.
        starts = (np.cumsum(self.counts, dtype=np.int64) - self.counts)[rows]
        ends = np.cumsum(counts, dtype=np.int64)
        at = np.repeat(starts - (ends - counts), counts) + np.arange(counts.sum(dtype=np.int64))
        return type(self)(counts=counts, values=self.values[at])

    @property
    def receipt(self) -> npt.NDArray[np.int64]:
        """Receipt of each value, int64."""
        return np.repeat(np.arange(len(self)), self.counts)
