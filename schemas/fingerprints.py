"""Fingerprints of receipts: what tells whether two of them are one purchase."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

import numpy as np
import numpy.typing as npt

# Version 1 held hashes of the numbers; from a hash, nobody can tell a misread number from another.
FINGERPRINTS_VERSION = 2
MAX_NUMBERS = 256  # of one receipt: a kilobyte in its lookup
MAX_DIGITS = 9  # of one number: its last ones
TIME_OF_DAY = 1 << 31  # of a number that is printed as one, such as 12:30
TEXT_WORDS = 4  # of 64 bits
HASH_WORDS = 16  # of the perceptual hash of an image

NumberArray = npt.NDArray[np.uint32]
HashArray = npt.NDArray[np.uint64]
_NO_HASHES = np.zeros((0, HASH_WORDS), np.uint64)


def number_code(digits: str) -> int:
    """Returns a number of its last nine digits, behind a 1 that keeps zeros: 1050 for "050"."""
    return int("1" + digits[-MAX_DIGITS:])


@dataclass(frozen=True, kw_only=True, eq=False)
class TextFingerprint:
    """Fingerprint of one receipt's text.

    Attributes:
      numbers: codes of its distinct numbers, see `number_code`, plus `TIME_OF_DAY` for times.
      text_bits: an integer of 256 bits, one of which is set for each word without a digit.
    """

    numbers: Sequence[int] = ()
    text_bits: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Fingerprints:
    """Fingerprints of n receipts.

    Attributes:
      counts: int32 [n], how many distinct numbers are printed on each receipt.
      numbers: uint32 [counts.sum()], their codes, one receipt after the other.
      text_bits: uint64 [n, 4], a bit for each word without a digit, chosen by its hash.
      images: uint64 [n, 16], perceptual hashes of the images; zeros for an image that shows
        nothing, and where images are not compared.
    """

    counts: npt.NDArray[np.int32]
    numbers: NumberArray
    text_bits: HashArray
    images: HashArray

    def __len__(self) -> int:
        return len(self.counts)

    @classmethod
    def of(cls, texts: Sequence[TextFingerprint], images: HashArray | None = None) -> Self:
        """Makes them of the fingerprints of each receipt's text, and the hashes of the images."""
        counts = np.array([len(text.numbers) for text in texts], np.int32)
        numbers = chain.from_iterable(text.numbers for text in texts)
        text_bits = b"".join(text.text_bits.to_bytes(8 * TEXT_WORDS, "little") for text in texts)
        if images is None:
            images = np.zeros((len(counts), HASH_WORDS), np.uint64)
        return cls(
            counts=counts,
            numbers=np.fromiter(numbers, np.uint32, int(counts.sum())),
            text_bits=np.frombuffer(text_bits, "<u8").astype(np.uint64).reshape(-1, TEXT_WORDS),
            images=images,
        )

    @classmethod
    def concatenate(cls, parts: Iterable[Self]) -> Self:
        """Joins the receipts of all parts."""
        parts = [cls.of([]), *parts]
        return cls(
            counts=np.concatenate([part.counts for part in parts]),
            numbers=np.concatenate([part.numbers for part in parts]),
            text_bits=np.concatenate([part.text_bits for part in parts]),
            images=np.concatenate([part.images for part in parts]),
        )

    def take(self, rows: npt.NDArray[Any]) -> Self:
        """Returns some receipts, by their positions or a mask."""
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        counts = self.counts[rows]
        starts = (np.cumsum(self.counts, dtype=np.int64) - self.counts)[rows]
        return type(self)(
            counts=counts,
            numbers=self.numbers[ranges(starts, counts)],
            text_bits=self.text_bits[rows],
            images=self.images[rows],
        )

    @property
    def receipt(self) -> npt.NDArray[np.int64]:
        """Receipt of each number, int64."""
        return np.repeat(np.arange(len(self)), self.counts)

    @property
    def has_image(self) -> npt.NDArray[np.bool_]:
        """Tells which receipts have a hash of their image, bool [n]."""
        return self.images.any(axis=1)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays for a file, by name; the images' are left out where no image is compared."""
        result: dict[str, npt.NDArray[Any]] = {
            "number_counts": self.counts.astype("<i4"),
            "numbers": self.numbers.astype("<u4"),
            "text_bits": self.text_bits.astype("<u8"),
        }
        rows = np.flatnonzero(self.has_image)
        if len(rows):
            result["image_rows"] = rows.astype("<i4")
            result["image_hashes"] = self.images[rows].astype("<u8")
        return result

    @staticmethod
    def are_in(arrays: Iterable[str]) -> bool:
        """Tells from the names of a file's arrays whether it has fingerprints of this version."""
        return "text_bits" in arrays

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Inverse of `arrays`; there may be others among them."""
        counts = arrays["number_counts"]
        images = np.zeros((len(counts), HASH_WORDS), np.uint64)
        images[arrays.get("image_rows", np.zeros(0, np.int32))] = arrays.get(
            "image_hashes", _NO_HASHES
        )
        return cls(
            counts=counts, numbers=arrays["numbers"], text_bits=arrays["text_bits"], images=images
        )


def ranges(
    starts: npt.NDArray[np.int64], counts: npt.NDArray[np.signedinteger[Any]]
) -> npt.NDArray[np.int64]:
    """Joins ranges of integers: 5 0 1 for the starts 5 0 and the counts 1 2."""
    ends = np.cumsum(counts, dtype=np.int64)
    places: npt.NDArray[np.int64] = np.arange(counts.sum(dtype=np.int64))
    places += np.repeat(starts - (ends - counts), counts)
    return places
