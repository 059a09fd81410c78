"""Rows of the table of `make interop`, which readers write in environments of their own."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.interop.expected import Comparison, Expected
from schemas.typed_json import parse_as


@dataclass(frozen=True, kw_only=True)
class Result:
    """A row: a reader, what it read, and how that compares.

    Attributes:
      reader: name of the library, and its version.
      directory: name of the dataset directory.
      version: version of the dataset.
      split: the split.
      part: what was read of the split.
      comparison: what was found.
    """

    reader: str
    directory: str
    version: int
    split: str
    part: str
    comparison: Comparison

    @classmethod
    def of(
        cls,
        reader: str,
        expected: Expected,
        part: str,
        comparison: Comparison,
        faults: Sequence[str] = (),
    ) -> "Result":
        """Makes the row of a part of a split; `faults` are added to those of the comparison."""
        return cls(
            reader=reader,
            directory=expected.directory.name,
            version=expected.manifest.version,
            split=expected.split,
            part=part,
            comparison=replace(comparison, faults=(*comparison.faults, *faults)),
        )

    @property
    def cells(self) -> dict[str, str | int]:
        """Column to what the table shows."""
        return {
            "reader": self.reader,
            "directory": self.directory,
            "version": self.version,
            "split": self.split,
            "part": self.part,
            "expected": self.comparison.expected,
            "read": self.comparison.read,
            "images": self.comparison.images,
            "boxes": self.comparison.boxes,
            "labels": self.comparison.labels,
            "faults": len(self.comparison.faults),
        }


def save(results: Sequence[Result], path: Path) -> None:
    """Writes rows as JSON."""
    path.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")


def load(path: Path) -> list[Result]:
    """Inverse of `save`.

    Raises:
      ValueError: the file holds something else, or no row.
    """
    rows = json.loads(path.read_text())
    if not rows:
        raise ValueError(f"{path} has no row: nothing was read")
    return [parse_as(Result, row, f"row {number} of {path}") for number, row in enumerate(rows)]
