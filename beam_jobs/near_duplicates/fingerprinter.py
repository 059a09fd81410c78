"""The fingerprints of receipts, taken one after the other."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from PIL import Image

from beam_jobs.near_duplicates.perceptual_hash import perceptual_hash
from beam_jobs.near_duplicates.text_fingerprint import text_fingerprint
from schemas.fingerprints import (
    FINGERPRINTS_VERSION,
    HASH_WORDS,
    Fingerprints,
    HashArray,
    TextFingerprint,
)

_NO_IMAGE = np.zeros(HASH_WORDS, np.uint64)


class Fingerprinter:
    """Takes fingerprints: the numbers and words of receipts and, if asked for, hashes of images.

    Args:
      compares_images: whether images are hashed.
    """

    def __init__(self, *, compares_images: bool) -> None:
        self._compares_images = compares_images
        self._texts: list[TextFingerprint] = []
        self._images: list[HashArray] = []

    def add(
        self, lines: Iterable[str], open_image: Callable[[], Image.Image] | None = None
    ) -> None:
        """Adds a receipt.

        Args:
          lines: its text.
          open_image: opens its image as it is stored; None in a dry run, which has none.
        """
        self._texts.append(text_fingerprint(lines))
        self._images.append(
            perceptual_hash(open_image()) if self._compares_images and open_image else _NO_IMAGE
        )

    def fingerprints(self) -> Fingerprints:
        """Returns the fingerprints of all receipts, in their order."""
        images = np.array(self._images, np.uint64).reshape(-1, HASH_WORDS)
        return Fingerprints.of(self._texts, images)


def has_other_fingerprints(build_options: Mapping[str, Any]) -> bool:
    """Tells whether a dataset has fingerprints that can't be compared with those taken now.

    Args:
      build_options: how it was built, as its manifest has it.
    """
    return (
        build_options.get("near_duplicates", "off") != "off"
        and build_options.get("fingerprints_version") != FINGERPRINTS_VERSION
    )
