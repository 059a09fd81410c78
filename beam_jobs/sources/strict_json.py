"""JSON whose objects have each key once; Python would let the last of several win."""

import json
from typing import Any

from beam_jobs.shown import shown


def loads(text: str | bytes) -> Any:
    """Parses a JSON text.

    Raises:
      ValueError: the text is not JSON, or an object in it has a key twice.
    """
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {shown(key)} comes twice")
        result[key] = value
    return result
