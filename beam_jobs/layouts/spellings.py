"""Spellings of one name: layouts that people have typed, and mistyped.

Two names are spellings of one if they have the same letters and digits, or differ in one letter:
one that is wrong, missing, too many, or has changed places with the next. Numbers must be equal:
store 11 and store 12 are two. Of several spellings, the one that most receipts have is the name.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from types import MappingProxyType

_NOTHING: Mapping[str, str] = MappingProxyType({})
_MIN_LETTERS = 8  # of a name in which a letter may differ: "lidl" and "aldi" are short


def merge_spellings(
    counts: Mapping[str, int],
    known: Sequence[str] = (),
    earlier: Mapping[str, str] = _NOTHING,
) -> dict[str, str]:
    """Finds names that are spellings of others.

    A name is compared with those that stay and have more receipts, by their forms without one
    letter (Garbe 2012, SymSpell): a name of n letters has n such forms, whatever the number of
    names. Names that stay are never joined with each other, so chains of typing errors can't grow:
    of "abcdefgh" with 9 receipts, "abcdefgx" with 2 and "abcdefyx" with 1, the last one stays.

    Args:
      counts: name to how many receipts have it.
      known: names that the dataset has already, which stay.
      earlier: spellings that were found before, and the known names in their place.

    Returns:
      Each name that is a spelling of another, and that other: of several the one with the most
      receipts, and known ones before others.
    """
    known_names = frozenset(known)
    new = sorted(counts.keys() - known_names, key=lambda name: (-counts[name], name))
    staying: list[str] = []
    with_form: dict[str, tuple[int, ...]] = {}  # a form, and the names that stay and have it

    def stay(name: str) -> None:
        for form in _forms(_plain(name)):
            with_form[form] = (*with_form.get(form, ()), len(staying))
        staying.append(name)

    for name in known:
        stay(name)
    spellings = {}
    for name in new:
        plain = _plain(name)
        found = {number for form in _forms(plain) for number in with_form.get(form, ())}
        alike = [number for number in found if _is_spelling(plain, _plain(staying[number]))]
        if earlier.get(name) in known_names:
            spellings[name] = earlier[name]
        elif alike:
            spellings[name] = staying[min(alike)]
        else:
            stay(name)
    return spellings


def _plain(name: str) -> str:
    """Returns the letters and numbers of a name, without case: "MR. D.I.Y." is "mrdiy"."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    # Marks as well: the vowels of many scripts are marks.
    return "".join(char for char in folded if unicodedata.category(char)[0] in "LMN") or folded


def _forms(plain: str) -> set[str]:
    """Returns a name and, if one letter may differ, the name without each of its letters."""
    shorter = range(len(plain)) if len(plain) >= _MIN_LETTERS else ()
    return {plain, *(plain[:at] + plain[at + 1 :] for at in shorter)}


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
    if any(char.isnumeric() for char in left + right):
        return False
    return max(len(left), len(right)) == 1 or (len(left) == 2 and left == right[::-1])
