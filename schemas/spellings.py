"""Spellings: the names of layouts that a build took for others, `spellings.json`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Self

from schemas import versioned_json
from schemas.typed_json import parse_as

FORMAT = "tillroll-spellings"
FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Spellings:
    """Names of layouts that were replaced: each, and the name that its receipts have instead."""

    names: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The file's text; equal spellings give equal text."""
        return versioned_json.to_text(asdict(self), format_name=FORMAT, version=FORMAT_VERSION)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Inverse of `to_json`.

        Raises:
          ValueError: the text is not such a file.
        """
        values = versioned_json.from_text(
            text,
            format_name=FORMAT,
            newest_version=FORMAT_VERSION,
            repair="build the dataset again",
        )
        return parse_as(cls, values, "spellings")
