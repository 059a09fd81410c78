"""Split and deal of a table of millions of rows with fake references: time, memory, fairness.

Runs the build's own dry run on the table: every row is read, grouped into chunks, split and dealt;
only the images are not there.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.build_throughput import measured
from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.long_tail import long_tail


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = benchmark_parser("deal_scale", "", __doc__)
    parser.add_argument(
        "--rows",
        type=int,
        default=10_000_000,
        metavar="N",
        help="number of rows (default: %(default)s)",
    )
    parser.add_argument(
        "--layouts",
        type=int,
        default=20_000,
        metavar="N",
        help="number of layouts (default: %(default)s)",
    )
    parser.add_argument(
        "--files", type=int, default=16, metavar="N", help="number of tables (default: %(default)s)"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=2,
        metavar="N",
        help="number of processes (default: %(default)s)",
    )
    args = parser.parse(argv)
    with tempfile.TemporaryDirectory(prefix="deal-scale-") as folder:
        started = time.perf_counter()
        write_tables(Path(folder), rows=args.rows, layouts=args.layouts, tables=args.files)
        print(f"wrote {args.rows:,} rows in {time.perf_counter() - started:.0f} s")
        command = [
            sys.executable,
            "-m",
            "beam_jobs.build",
            "--dry-run",
            "--input",
            f"{folder}/rows-*.csv",
            "--output",
            f"{folder}/out",
            "--workers",
            str(args.workers),
        ]

        def run_command() -> None:
            subprocess.run(command, check=True)

        run = measured(run_command)
    print(
        f"{args.rows:,} rows, {args.layouts:,} layouts, {args.workers} processes: "
        f"{run.elapsed_s:.0f} s, {run.peak_bytes / 1e9:.2f} GB, "
        f"{run.peak_bytes / args.rows:.0f} bytes per row"
    )
    return 0


def write_tables(folder: Path, *, rows: int, layouts: int, tables: int) -> None:
    """CSV tables of rows whose layouts follow a long tail."""
    rng = np.random.default_rng(0)
    for number, part in enumerate(np.array_split(np.arange(rows), tables)):
        chosen = long_tail(rng, len(part), layouts=layouts)
        with (folder / f"rows-{number:03d}.csv").open("w") as file:
            file.write("image,layout\n")
            file.writelines(
                f"{row:09d}.jpg,layout-{layout:05d}\n"
                for row, layout in zip(part.tolist(), chosen.tolist(), strict=True)
            )


if __name__ == "__main__":
    sys.exit(main())
