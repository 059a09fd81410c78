"""Spellings of one name: layouts that people have typed, and mistyped.

Two names are spellings of one if they have the same letters and digits, or differ in one letter:
one that is wrong, missing, too many, or has changed places with the next. Digits must be equal:
store 11 and store 12 are two. Of several spellings, the one that most receipts have is the name.
"""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence

_MIN_LETTERS = 8  # of a name in which a letter may differ: "lidl" and "aldi" are short


def merge_spellings(counts: Mapping[str, int], known: Sequence[str] = ()) -> dict[str, str]:
    """Finds names that are spellings of others.

    A name is compared with those that stay and have more receipts, by their forms without one
    letter (Garbe 2012, SymSpell): names of n letters have n such forms, whatever their number.
    Names that stay are never joined with each other, so chains of typing errors can't grow: of
    "abcdefgh" with 9 receipts, "abcdefgx" with 2 and "abcdefyx" with 1, the last one stays.

    Args:
      counts: name to how many receipts have it.
      known: names that the dataset has already, which stay.

    Returns:
      Each name that is a spelling of another, and that other.
    """
    first: dict[str, str] = {}  # a form of a name, and the first name that has it
    spellings = {}
    new = sorted(counts.keys() - set(known), key=lambda name: (-counts[name], name))
    for number, name in enumerate([*known, *new]):
        plain = _plain(name)
        found = None
        if number >= len(known):
            found = next(
                (
                    first[form]
                    for form in (plain, *_forms(plain))
                    if form in first and _is_spelling(plain, _plain(first[form]))
                ),
                None,
            )
        if found is not None:
            spellings[name] = found
            continue
        for form in (plain, *_forms(plain)):
            first.setdefault(form, name)
    return spellings


def _plain(name: str) -> str:
    """Returns the letters and digits of a name, without case: "MR. D.I.Y." is "mrdiy"."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(char for char in folded if char.isalnum()) or folded


def _forms(plain: str) -> Iterator[str]:
    """Yields a name without each of its characters, if one may differ."""
    if len(plain) >= _MIN_LETTERS:
        for at in range(len(plain)):
            yield plain[:at] + plain[at + 1 :]


def _is_spelling(left: str, right: str) -> bool:
    """Returns whether two plain names are equal but for one letter (Damerau 1964)."""
    if left == right:
        return True
    if min(len(left), len(right)) < _MIN_LETTERS:
        return False
    start = 0
    while start < min(len(left), len(right)) and left[start] == right[start]:
        start += 1
    left, right = left[start:], right[start:]
    while left and right and left[-1] == right[-1]:
        left, right = left[:-1], right[:-1]
    if any(char.isdigit() for char in left + right):
        return False
    return max(len(left), len(right)) == 1 or (len(left) == 2 and left == right[::-1])
