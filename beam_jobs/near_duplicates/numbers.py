"""The numbers of a receipt, read from the text of its boxes."""

import re
import unicodedata
from collections.abc import Iterable

import xxhash

from schemas.fingerprints import MAX_NUMBERS

NUMBERS_VERSION = 1
MIN_NUMBERS = 5  # distinct ones: two cups of coffee for the same price are two purchases
_NUMBER = re.compile(r"\S*\d\S*")
_PUNCTUATION = "()[]{}<>:;,.*#=-_'\"!?|/\\"


def number_hashes(lines: Iterable[str]) -> list[int]:
    """Hashes the numbers of a receipt to 32 bits each, in the order of its lines.

    A number is a word that holds a digit: a price, a date, an invoice number. Its case and form
    don't count, and neither does punctuation around it. Of more than 256, the first ones.
    """
    text = " ".join(lines)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    words = (word.strip(_PUNCTUATION) for word in _NUMBER.findall(text.casefold()))
    return [xxhash.xxh32_intdigest(word) for word in words][:MAX_NUMBERS]
