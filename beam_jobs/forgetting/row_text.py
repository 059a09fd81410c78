"""Ids in the text of rows that could not be parsed, and so have no id of their own."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from schemas.quarantine import UNNAMED_ROW

_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"?')  # the last may be cut off
_OTHERWISE_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'?")
_CELL_ENDS = re.compile(r"[,;|\t\n{}\[\]]")
_PAIR_ENDS = re.compile(r"[,;|\t\n{}\[\]:=]")
_AROUND = " \t\r\n\"'"


def ids_in(rejected: Mapping[str, Any], ids: frozenset[str]) -> frozenset[str]:
    """Returns which of the ids a rejected input has.

    The text of a row without an id may hold several. An id counts if it is a whole cell, string or
    word: "r7" is in `{"id": "r7", "total": ` and not in `{"id": "r70", `.

    Args:
      rejected: values of `REJECTED_FEATURES`, with or without the bytes.
      ids: the ids to look for.
    """
    id_ = rejected["id"]
    if not id_.startswith(UNNAMED_ROW):
        return ids & {id_}
    return ids.intersection((id_, *_texts(rejected["source"])))


def _texts(row: str) -> Iterator[str]:
    """Yields what may be an id in the text of a row, in time linear in its length."""
    for text in _QUOTED.findall(row):
        yield text.strip()
        with suppress(ValueError):  # no escapes of JSON
            yield str(json.loads(f'"{text}"', strict=False)).strip()
    for text in _OTHERWISE_QUOTED.findall(row):
        yield text.strip()
    for ends in (_CELL_ENDS, _PAIR_ENDS):
        yield from (cell.strip(_AROUND) for cell in ends.split(row))
    yield from (word.strip("\"',;:()[]{}") for word in row.split())
