"""Reads dataset directories with TensorFlow Datasets, as it reads its own.

All records of each split with their images decoded, and a slice of `train`.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import tensorflow_datasets as tfds

from benchmarks.harness.command import benchmark_parser
from benchmarks.interop.expected import IMAGE, PIXELS, compare, splits
from benchmarks.interop.results import Result, save

_READER = f"TensorFlow Datasets {tfds.__version__}"
_SLICED, _PERCENT = "train", (10, 20)


def results(directory: Path) -> Iterator[Result]:
    """Yields a row for each split, and for a slice of one."""
    builder = tfds.builder_from_directory(str(directory))
    for expected in splits(directory):
        given = _records(builder, expected.split)
        yield Result.of(_READER, expected, "all records", compare(expected.records, given))
        if expected.split == _SLICED:
            low, high = _PERCENT
            # Its documentation says that percents are rounded to the closest record.
            own = expected.part(*(round(len(expected.records) * each / 100) for each in _PERCENT))
            part = f"[{low}%:{high}%]"
            given = _records(builder, f"{expected.split}{part}")
            yield Result.of(_READER, expected, part, compare(own, given))


def _records(builder: Any, split: str) -> Iterator[dict[str, Any]]:
    for values in tfds.as_numpy(builder.as_dataset(split)):
        yield {PIXELS if name == IMAGE else name: value for name, value in values.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = benchmark_parser("interop.tfds", "RESULTS DIRECTORY...", __doc__)
    parser.add_argument(
        "results", type=Path, metavar="RESULTS", help="JSON file of the rows to write"
    )
    parser.add_argument(
        "directories", nargs="+", type=Path, metavar="DIRECTORY", help="dataset directories"
    )
    args = parser.parse(argv)
    save([row for directory in args.directories for row in results(directory)], args.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
