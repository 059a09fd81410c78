"""The fingerprints of receipts, taken one after the other."""

from collections.abc import Callable, Iterable

import numpy as np
from PIL import Image

from beam_jobs.near_duplicates.numbers import MIN_NUMBERS, number_hashes
from beam_jobs.near_duplicates.perceptual_hash import perceptual_hash
from schemas.fingerprints import HASH_WORDS, Fingerprints, HashArray

_NO_IMAGE = np.zeros(HASH_WORDS, np.uint64)


class Fingerprinter:
    """Takes fingerprints: the numbers of a receipt or, where it has too few, a hash of its image.

    Args:
      compares_images: whether images are hashed at all.
    """

    def __init__(self, *, compares_images: bool) -> None:
        self._compares_images = compares_images
        self._numbers: list[list[int]] = []
        self._images: list[HashArray] = []

    def add(
        self, lines: Iterable[str], open_image: Callable[[], Image.Image] | None = None
    ) -> None:
        """Adds a receipt.

        Args:
          lines: its text.
          open_image: opens its image as it is stored; None in a dry run, which has none.
        """
        numbers = number_hashes(lines)
        wants_image = self._compares_images and len(set(numbers)) < MIN_NUMBERS
        self._numbers.append(numbers)
        self._images.append(
            perceptual_hash(open_image()) if wants_image and open_image else _NO_IMAGE
        )

    def fingerprints(self) -> Fingerprints:
        """Returns the fingerprints of all receipts, in their order."""
        images = np.array(self._images, np.uint64).reshape(-1, HASH_WORDS)
        return Fingerprints.of(self._numbers, images)
