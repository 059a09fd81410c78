"""Images/s of `beam_jobs.predict`, beside a plain tf.data loop with the same SavedModel.

Both are whole commands over the same images on the same cores, by turns, and start TensorFlow: the
loop in one process with a thread for each core, the job in one process for each core. A second
table, of the first few images, tells how much of that is start-up. The figures are the ratios of
the medians of images/s, with and without the start-up. Beside them stand processor seconds: on a
machine with other work they are the steadier measure of speed, as both keep all cores busy.
"""

import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.command import benchmark_parser
from schemas.command_line import CommandParser

LOOP, JOB = "tf.data loop", "beam_jobs.predict"
_DECODED = (".jpg", ".jpeg", ".png")
Run = tuple[float, float]  # elapsed and processor seconds of a command
Runs = dict[str, list[tuple[Run, Run]]]  # contender to its runs over few and over all images


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    args = _parser().parse(argv)
    cores = sorted(os.sched_getaffinity(0))[: args.workers]
    os.sched_setaffinity(0, cores)  # of the processes that are started, too
    rows = rows_for_tensorflow(args.table)
    if not 0 < args.few < len(rows):
        raise SystemExit(f"error: --few must be 1 to {len(rows) - 1}, got {args.few}")
    runs: Runs = {LOOP: [], JOB: []}
    with tempfile.TemporaryDirectory(prefix="predict-throughput-") as folder:
        tables = [Path(folder, f"{count}.jsonl") for count in (args.few, len(rows))]
        for table, count in zip(tables, (args.few, len(rows)), strict=True):
            table.write_text("".join(json.dumps(row) + "\n" for row in rows[:count]))
        for number in range(args.rounds):
            for name in runs:
                pair = [
                    _run(_command(name, args.model, table, Path(folder), args.batch_size))
                    for table in tables
                ]
                runs[name].append((pair[0], pair[1]))
                print(
                    f"round {number + 1} of {args.rounds}: {name} {len(rows) / pair[1][0]:,.1f} "
                    f"images/s, {args.few} images {pair[0][0]:.1f} s",
                    file=sys.stderr,
                )
    figures = summarize(runs, few=args.few, images=len(rows))
    print(
        f"{len(rows):,} images, {len(cores)} cores ({platform.machine()}), batches of "
        f"{args.batch_size}, model {args.model}"
    )
    for name, figure in figures.items():
        print(f"  {name:<44} {figure:,.2f}")
    if args.json:
        args.json.write_text(json.dumps({"figures": figures, "seconds": runs}, indent=1))
    return 0


def summarize(runs: Runs, *, few: int, images: int) -> dict[str, float]:
    """Medians over the rounds, and their ratios: of whole commands, and without start-up.

    The seconds for all images less those for a few are what the others take.
    """

    def median(name: str, which: int, *, steady: bool) -> float:
        """Median of elapsed (0) or processor (1) seconds."""
        return statistics.median(
            every[which] - (start[which] if steady else 0) for start, every in runs[name]
        )

    whole = {name: images / median(name, 0, steady=False) for name in runs}
    steady = {name: (images - few) / median(name, 0, steady=True) for name in runs}
    busy = {name: median(name, 1, steady=True) / (images - few) * 1e3 for name in runs}
    return {
        **{f"{name}, images/s": speed for name, speed in whole.items()},
        **{f"{name} without start-up, images/s": speed for name, speed in steady.items()},
        **{f"{name} without start-up, CPU ms/image": each for name, each in busy.items()},
        "ratio": whole[JOB] / whole[LOOP],
        "ratio without start-up": steady[JOB] / steady[LOOP],
        "ratio without start-up, by CPU time": busy[LOOP] / busy[JOB],
    }


def _parser() -> CommandParser:
    parser = benchmark_parser("predict_throughput", "MODEL TABLE", __doc__)
    parser.add_argument("model", type=Path, metavar="MODEL", help="exported model")
    parser.add_argument("table", type=Path, metavar="TABLE", help="table of benchmarks.receipts")
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="number of rounds (default: %(default)s)"
    )
    parser.add_argument(
        "--workers", type=int, default=2, metavar="N", help="number of cores (default: %(default)s)"
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=32,
        metavar="IMAGES",
        help="images that the model sees at a time (default: %(default)s)",
    )
    parser.add_argument(
        "--few",
        type=int,
        default=64,
        metavar="IMAGES",
        help="images of the table that tells the start-up (default: %(default)s)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the figures to this file"
    )
    return parser


def rows_for_tensorflow(table: Path) -> list[dict[str, str]]:
    """Ids and whole paths of the JPEG and PNG files that a table names: the loop takes no other."""
    rows = map(json.loads, table.read_text().splitlines())
    return [
        {"id": row["id"], "image": str((table.parent / row["image"]).absolute())}
        for row in rows
        if row["image"].lower().endswith(_DECODED)
    ]


def _command(name: str, model: Path, table: Path, folder: Path, batch_size: int) -> list[str]:
    output = folder / "output"
    if name == LOOP:
        arguments = ["benchmarks.harness.predict_loop", str(model), str(table), f"{output}.jsonl"]
        return [sys.executable, "-m", *arguments, str(batch_size)]
    shutil.rmtree(output, ignore_errors=True)
    options = [f"--batch-size={batch_size}", "--quiet", "--max-bad-fraction=0"]
    where = ["--input", str(table), "--output", str(output)]
    return [sys.executable, "-m", "beam_jobs.predict", str(model), *where, *options]


def _run(command: Sequence[str]) -> Run:
    before, started_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    elapsed_s, after = time.perf_counter() - started_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
