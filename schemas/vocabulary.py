"""Vocabularies: the values of a category in the order of their ids, which never change."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self


@dataclass(frozen=True)
class Vocabulary:
    """The values of a category; position is id.

    The values of a first build are sorted. Those that come later follow at the end, so a vocabulary
    as a whole is in no order: "aral kiosk" grows by "bakery" to "aral kiosk bakery".
    """

    values: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def sorted(cls, values: Iterable[str]) -> Self:
        """Makes the vocabulary of a first build."""
        return cls(tuple(sorted(set(values))))

    def grown(self, values: Iterable[str]) -> Self:
        """Adds those of some values that are new, sorted, at the end."""
        return type(self)((*self.values, *sorted(set(values) - set(self.values))))

    def position(self, value: str) -> int:
        """Returns the id of a value.

        Raises:
          KeyError: the vocabulary lacks the value.
        """
        rank = bisect_left(self._order, value, key=self.values.__getitem__)
        if rank == len(self._order) or self.values[self._order[rank]] != value:
            raise KeyError(value)
        return self._order[rank]

    @cached_property
    def _order(self) -> Sequence[int]:
        """Ids in the order of their values: 0 2 1 of "aral kiosk bakery"."""
        # Not a dict of ids by value, which takes four times the memory and is made anew in every
        # process.
        return sorted(range(len(self.values)), key=self.values.__getitem__)
