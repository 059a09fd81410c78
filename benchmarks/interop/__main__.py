"""Prints what each reader read: `python -m benchmarks.interop RESULTS...`.

Its status is 1 if anything was not read as it should be.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.timing import table
from benchmarks.interop.results import load

_SHOWN = 5  # faults of a row: a reader that gets one record wrong may get all wrong


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = benchmark_parser("interop", "RESULTS...", __doc__)
    parser.add_argument(
        "results", nargs="+", type=Path, metavar="RESULTS", help="files that the readers wrote"
    )
    results = [result for path in parser.parse(argv).results for result in load(path)]
    print(table([result.cells for result in results]))
    faults = 0
    for result in results:
        found = result.comparison.faults
        faults += len(found)
        where = f"{result.reader}, {result.directory}, {result.split}, {result.part}"
        for fault in found[:_SHOWN]:
            print(f"FAULT: {where}: {fault}")
        if len(found) > _SHOWN:
            print(f"FAULT: {where}: {len(found) - _SHOWN} more")
    print(f"{faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
