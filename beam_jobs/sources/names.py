"""Names: ids, images, layouts, groups and categories, as texts that are equal if the names are.

One name comes in several forms. macOS writes é as two characters (NFD), others as one (NFC), and
they look the same. pandas makes floating-point numbers of a column of whole numbers once a cell of
it is empty: 7 becomes 7.0.
"""

import itertools
import math
import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from beam_jobs.shown import shown

MAX_CHARACTERS = 4096  # as many bytes as a path of Linux may have
_MAX_EXACT = 2**53  # whole numbers below are exact as floating-point numbers
_WHOLE_FLOAT = re.compile(r"-?[0-9]+\.0")
# What pandas, R and clients of SQL write into an empty cell.
_NO_VALUE = frozenset(
    ("NULL", "null", "None", "NaN", "nan", "NaT", "N/A", "n/a", "#N/A", "<NA>", "\\N")
)
_MAX_FORMS = 64


def is_absent(raw: Any) -> bool:
    """Returns whether a value is none: null, NaN, or blank text."""
    if isinstance(raw, str):
        return not raw.strip()
    return raw is None or (isinstance(raw, float) and math.isnan(raw))


def in_nfc(name: str) -> str:
    """Returns a name in Unicode's form NFC, in which equal names are equal texts."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def parse_name(kind: str, raw: Any) -> str:
    """Returns the name that a value is; "" where there is no value.

    A whole number has the same name as an int and as a float.

    Args:
      kind: what it names, for the error.
      raw: the value, as a table or folder has it.

    Raises:
      ValueError: the value is no name, or too long for one.
    """
    if isinstance(raw, str):  # most are, of millions
        name = in_nfc(raw.strip())
    elif is_absent(raw):
        return ""
    elif isinstance(raw, list | dict | bool | bytes):
        raise ValueError(f"the {kind} must be a name, got {shown(raw)}")
    elif isinstance(raw, float | Decimal):
        if not math.isfinite(raw) or (isinstance(raw, float) and abs(raw) >= _MAX_EXACT):
            raise ValueError(
                f"the {kind} must be a name, got {shown(raw)}, which may have lost digits: write "
                "it as text"
            )
        name = str(int(raw) if raw == int(raw) else raw)
    else:
        name = in_nfc(str(raw).strip())
    if len(name) > MAX_CHARACTERS:
        raise ValueError(
            f"the {kind} must have at most {MAX_CHARACTERS:,} characters, got {shown(name)}"
        )
    return name


def parse_key(kind: str, raw: Any) -> str:
    """Returns the name that an id or a group is, see `parse_name`; "7" for the text "7.0", too.

    Layouts and categories keep such a text: it may be the version of a form.
    """
    name = parse_name(kind, raw)
    if name.endswith(".0") and _WHOLE_FLOAT.fullmatch(name):
        return name.removesuffix(".0")
    return name


def none_for_null_words(raw: Any) -> Any:
    """Returns a cell of a table that names something; None for NULL, nan and the like."""
    return None if isinstance(raw, str) and raw in _NO_VALUE else raw


def forms_of(name: str) -> tuple[str, ...]:
    """Returns a name as it is, in NFC and in NFD, each form once."""
    forms = (name, in_nfc(name), unicodedata.normalize("NFD", name))
    return tuple(dict.fromkeys(forms))


def other_forms(path: str) -> Iterator[str]:
    """Yields a path with each of its parts in NFC or NFD, but not as it is.

    Folders and files may come from different systems: "Café/reçu.jpg" has three other forms.
    """
    if path.isascii():
        return
    forms = map("/".join, itertools.product(*map(forms_of, path.split("/"))))
    yield from itertools.islice((form for form in forms if form != path), _MAX_FORMS)
