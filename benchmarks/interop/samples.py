"""Tables of samples of the same receipts, and of one that has shifted.

`first.jsonl` has every other row of a table, `second.jsonl` the others. `shifted.jsonl` is the
second with planted shifts: totals are three times as high, and of all layouts but the most frequent
one only a third of the receipts is left. `third_1.jsonl` to `third_3.jsonl` have a third of the
rows each. All lie beside the table, as images are named from there.
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.command import benchmark_parser

TOTAL_FACTOR = 3
_KEPT_OF_OTHER_LAYOUTS = 3  # one of three

Row = dict[str, Any]


def samples(rows: Sequence[Row], *, seed: int = 0) -> dict[str, list[Row]]:
    """Makes the tables: name to its rows."""
    shuffled = random.Random(seed).sample(rows, len(rows))
    first, second = shuffled[::2], shuffled[1::2]
    thirds = {f"third_{number + 1}": shuffled[number::3] for number in range(3)}
    return {"first": first, "second": second, "shifted": _shifted(second), **thirds}


def _shifted(rows: Sequence[Row]) -> list[Row]:
    [(most_frequent, _)] = Counter(row["layout"] for row in rows).most_common(1)
    same = [row for row in rows if row["layout"] == most_frequent]
    others = [row for row in rows if row["layout"] != most_frequent][::_KEPT_OF_OTHER_LAYOUTS]
    return [{**row, "total": row["total"] * TOTAL_FACTOR} for row in [*same, *others]]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = benchmark_parser("interop.samples", "TABLE", __doc__)
    parser.add_argument(
        "table", type=Path, metavar="TABLE", help="receipts.jsonl of benchmarks.receipts"
    )
    table = parser.parse(argv).table
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    for name, sample in samples(rows).items():
        path = table.with_name(f"{name}.jsonl")
        path.write_text("".join(json.dumps(row) + "\n" for row in sample))
        print(f"{path}: {len(sample)} receipts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
