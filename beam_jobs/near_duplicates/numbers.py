"""The numbers of a receipt, read from the text of its boxes."""

import re
import unicodedata
from collections.abc import Iterable, Sequence

import xxhash

from beam_jobs.sources.row import Row
from schemas.receipt_numbers import MAX_NUMBERS, ReceiptNumbers

NUMBERS_VERSION = 1
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


def numbers_of(rows: Sequence[Row]) -> ReceiptNumbers:
    """Makes the numbers of rows, from the text of their boxes."""
    return ReceiptNumbers.of([number_hashes(box[4] for box in row.boxes) for row in rows])
