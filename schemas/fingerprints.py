"""Fingerprints of receipts: what tells whether two of them are one purchase."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

import numpy as np
import numpy.typing as npt

MAX_NUMBERS = 256  # of one receipt: a kilobyte in its lookup
HASH_WORDS = 16  # of the perceptual hash of an image

HashArray = npt.NDArray[np.uint64]
_NO_HASHES = np.zeros((0, HASH_WORDS), np.uint64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Fingerprints:
    """Fingerprints of n receipts.

    Attributes:
      counts: int32 [n], how many numbers are printed on each receipt.
      values: uint32 [counts.sum()], their hashes as printed, one receipt after the other.
      images: uint64 [n, 16], perceptual hashes of the images; zeros for a receipt whose numbers
        decide, and where images are not compared.
    """

    counts: npt.NDArray[np.int32]
    values: npt.NDArray[np.uint32]
    images: HashArray

    def __len__(self) -> int:
        return len(self.counts)

    @classmethod
    def of(cls, numbers: Sequence[Sequence[int]], images: HashArray | None = None) -> Self:
        """Makes them of the hashes of each receipt's numbers, and those of the images."""
        counts = np.array([len(one) for one in numbers], np.int32)
        values = np.fromiter(chain.from_iterable(numbers), np.uint32, int(counts.sum()))
        if images is None:
            images = np.zeros((len(counts), HASH_WORDS), np.uint64)
        return cls(counts=counts, values=values, images=images)

    @classmethod
    def concatenate(cls, parts: Iterable[Self]) -> Self:
        """Joins the receipts of all parts."""
        parts = [cls.of([]), *parts]
        return cls(
            counts=np.concatenate([part.counts for part in parts]),
            values=np.concatenate([part.values for part in parts]),
            images=np.concatenate([part.images for part in parts]),
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
        return type(self)(counts=counts, values=self.values[at], images=self.images[rows])

    @property
    def receipt(self) -> npt.NDArray[np.int64]:
        """Receipt of each number, int64."""
        return np.repeat(np.arange(len(self)), self.counts)

    @property
    def has_image(self) -> npt.NDArray[np.bool_]:
        """Tells which receipts are compared by their images, bool [n]."""
        return self.images.any(axis=1)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays for a file, by name; the images' are left out where no image is compared."""
        result: dict[str, npt.NDArray[Any]] = {
            "number_counts": self.counts.astype("<i4"),
            "number_values": self.values.astype("<u4"),
        }
        rows = np.flatnonzero(self.has_image)
        if len(rows):
            result["image_rows"] = rows.astype("<i4")
            result["image_hashes"] = self.images[rows].astype("<u8")
        return result

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Inverse of `arrays`; there may be others among them."""
        counts = arrays["number_counts"]
        images = np.zeros((len(counts), HASH_WORDS), np.uint64)
        images[arrays.get("image_rows", np.zeros(0, np.int32))] = arrays.get(
            "image_hashes", _NO_HASHES
        )
        return cls(counts=counts, values=arrays["number_values"], images=images)
