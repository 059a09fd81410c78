"""The receipts that are least like the layout that was found for them, `least_certain.json`.

Receipts get the layout whose centroid they are nearest to. Those that are farthest from it may be
of another layout, so they are worth a look.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Self

from schemas import versioned_json
from schemas.typed_json import parse_as

FORMAT = "tillroll-least-certain"
FORMAT_VERSION = 1
MAX_RECEIPTS = 64
DECIMALS = 6  # of a similarity


@dataclass(frozen=True, kw_only=True)
class UncertainReceipt:
    """One receipt whose layout is not certain.

    Attributes:
      id: the receipt's id.
      split: the split that it lies in.
      layout: the layout that was found.
      similarity: cosine between its descriptor and the centroid of the layout.
    """

    id: str
    split: str
    layout: str
    similarity: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.similarity):
            raise ValueError(f"similarity must be a number, got {self.similarity}")


@dataclass(frozen=True, kw_only=True)
class LeastCertain:
    """The least certain receipts of a version, the least similar first: at most 64 of them."""

    receipts: tuple[UncertainReceipt, ...] = ()

    @classmethod
    def of(cls, receipts: Iterable[UncertainReceipt]) -> Self:
        """Lists the least certain ones of some receipts, in a fixed order."""
        ordered = sorted(set(receipts), key=lambda one: (one.similarity, one.id))
        return cls(receipts=tuple(ordered[:MAX_RECEIPTS]))

    def without(self, *, ids: Collection[str], layouts: Collection[str]) -> Self:
        """Returns the list without the receipts that have one of these ids or layouts."""
        left = (one for one in self.receipts if one.id not in ids and one.layout not in layouts)
        return type(self)(receipts=tuple(left))

    def to_json(self) -> str:
        """The file's text; equal lists give equal text."""
        return versioned_json.to_text(asdict(self), format_name=FORMAT, version=FORMAT_VERSION)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Inverse of `to_json`.

        Raises:
          ValueError: the text is not such a file.
        """
        values = versioned_json.from_text(
            text,
            format_name=FORMAT,
            newest_version=FORMAT_VERSION,
            repair="build the dataset again",
        )
        return parse_as(cls, values, FORMAT)
