"""JSON files that name their format and its version: the manifest and what lies beside it."""

import json
from collections.abc import Mapping
from typing import Any


def to_text(values: Mapping[str, Any], *, format_name: str, version: int) -> str:
    """Makes the text of a file; equal values give equal text."""
    named = {"format": format_name, "format_version": version, **values}
    return json.dumps(named, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def from_text(
    text: str | bytes, *, format_name: str, newest_version: int, repair: str
) -> dict[str, Any]:
    """Reads the values of a file of this format, in this version or an older one.

    Args:
      text: the file.
      format_name: the format it must name.
      newest_version: the newest version that can be read.
      repair: advice for a damaged file, for the error.

    Raises:
      ValueError: the text is not such a file, or is of a newer version.
    """
    try:
        values = dict(json.loads(text))
        name, version = values.pop("format"), values.pop("format_version")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"not a {format_name} file: {error!r}; {repair}") from error
    # By type: True is an integer to `isinstance`.
    if name != format_name or type(version) is not int or version < 1:
        raise ValueError(
            f"not a {format_name} file: format {name!r}, version {version!r}; {repair}"
        )
    if version > newest_version:
        raise ValueError(
            f"the {format_name} file has format version {version}, this tillroll reads up to "
            f"{newest_version}: install a newer tillroll, or {repair}"
        )
    return values
