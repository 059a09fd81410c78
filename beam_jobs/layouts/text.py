"""Descriptors of receipts by their text: receipts of one layout begin with the same lines.

A descriptor holds the character trigrams of the first three lines, hashed into a vector of fixed
size with a sign (Weinberger et al. 2009, Feature Hashing for Large Scale Multitask Learning). The
cosine of two of them is about the share of trigrams that both have.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
import xxhash

from schemas.layout_centroids import Descriptors

TEXT_VERSION = 2
SIZE = 1024
_LINES = 3
_GRAM = 3
_MAX_CHARACTERS = 100


def text_descriptor(lines: Iterable[str]) -> Descriptors:
    """Describes a receipt by its text lines, from the top; int8 [1024], zeros if there is no text.

    Numbers count as equal, and so do letters that differ only in case or form.
    """
    # The first line, mostly the name of the shop, counts twice: chains have many addresses.
    weights: dict[str, int] = {}
    for number, line in enumerate(_header(lines)):
        padded = f" {line} "
        for at in range(len(padded) - _GRAM + 1):
            weights.setdefault(padded[at : at + _GRAM], 1 if number else 2)
    values = np.zeros(SIZE, np.int8)
    for gram, weight in weights.items():
        digest = xxhash.xxh3_64_intdigest(gram.encode())
        # The highest bit is the sign, the lowest ten are the place.
        values[digest % SIZE] += weight if digest >> 63 else -weight
    return values


def text_descriptors(receipts: Sequence[Iterable[str]]) -> Descriptors:
    """Describes receipts; int8 [n, 1024], see `text_descriptor`."""
    return np.array([text_descriptor(lines) for lines in receipts], np.int8).reshape(-1, SIZE)


def _header(lines: Iterable[str]) -> list[str]:
    """Returns the first lines of a receipt, without what differs from one receipt to the next."""
    kept: list[str] = []
    for line in lines:
        plain = unicodedata.normalize("NFKC", line).casefold()
        plain = " ".join(re.sub(r"\d+", "0", plain).split())
        if plain:
            kept.append(plain[:_MAX_CHARACTERS])
        if len(kept) == _LINES:
            break
    return kept
