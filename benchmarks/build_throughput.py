"""Images/s and memory of the build, beside a plain Pillow pool that does the same to each image.

Both run on the same images, on the same number of processes, in alternating rounds; the figure is
the ratio of the medians. Each build is a whole command, start-up included; a Beam job that does
nothing shows how much of it is Beam's.
"""

import io
import json
import multiprocessing
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import PIL
from PIL import Image, ImageOps

from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.timing import PeakMemory
from schemas.command_line import CommandParser

QUALITY = 90
ORIENTATION = 0x0112  # of EXIF


@dataclass(frozen=True, kw_only=True)
class Run:
    """One timed run: seconds, and the highest memory of all its processes together, in bytes."""

    elapsed_s: float
    peak_bytes: int


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    args = _parser().parse(argv)
    images = image_paths(args.table)
    size = {"workers": args.workers, "max_side": args.max_side}
    with tempfile.TemporaryDirectory(prefix="build-throughput-") as folder:
        runs: dict[str, list[Run]] = {"pool": [], "build": [], "empty job": []}
        for number in range(args.rounds):
            print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
            runs["pool"].append(
                measured(
                    lambda: run_pool(
                        images, Path(folder) / "pool", encode_all=args.encode_all, **size
                    )
                )
            )
            runs["build"].append(
                measured(lambda: run_build(args.table, Path(folder) / "build", **size))
            )
            runs["empty job"].append(measured(lambda: run_empty_job(args.workers)))
    figures = summarize(runs, images=len(images))
    print(
        f"{len(images):,} images, {args.workers} processes on {multiprocessing.cpu_count()} cores "
        f"({platform.machine()}), Pillow {PIL.__version__}, long side {args.max_side}, "
        f"quality {QUALITY}"
    )
    for name, figure in figures.items():
        print(f"  {name:<30} {figure:,.2f}")
    if args.json:
        args.json.write_text(json.dumps({"figures": figures, "runs": _plain(runs)}, indent=1))
    return 0


def _parser() -> CommandParser:
    parser = benchmark_parser("build_throughput", "TABLE", __doc__)
    parser.add_argument(
        "table", type=Path, metavar="TABLE", help="table of benchmarks.receipts, or a SROIE folder"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="number of rounds (default: %(default)s)"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=2,
        metavar="N",
        help="number of processes (default: %(default)s)",
    )
    parser.add_argument(
        "--max-side",
        type=int,
        default=1024,
        metavar="PIXELS",
        help="length of the longer side of a stored image (default: 1024)",
    )
    parser.add_argument(
        "--encode-all",
        action="store_true",
        help="let the pool encode every image, also those whose bytes the build keeps",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the figures to this file"
    )
    return parser


def summarize(runs: dict[str, list[Run]], *, images: int) -> dict[str, float]:
    """Medians over the rounds, and their ratios; speeds are relative to the pool's."""
    elapsed_s = {
        name: statistics.median(run.elapsed_s for run in rounds) for name, rounds in runs.items()
    }
    peak = {name: max(run.peak_bytes for run in rounds) / 1e6 for name, rounds in runs.items()}
    return {
        "pool, images/s": images / elapsed_s["pool"],
        "build, images/s": images / elapsed_s["build"],
        "empty Beam job, s": elapsed_s["empty job"],
        "build / pool": elapsed_s["pool"] / elapsed_s["build"],
        "build less empty job / pool": elapsed_s["pool"]
        / (elapsed_s["build"] - elapsed_s["empty job"]),
        "pool, peak MB": peak["pool"],
        "build, peak MB": peak["build"],
    }


def measured(work: Callable[[], None]) -> Run:
    """Runs `work`, which starts processes, and looks at the time and memory that it takes."""
    started = time.perf_counter()
    with PeakMemory(own=False) as memory:
        work()
        elapsed_s = time.perf_counter() - started
    return Run(elapsed_s=elapsed_s, peak_bytes=memory.peak_bytes)


def image_paths(table: Path) -> list[Path]:
    """The images that a table or a SROIE folder names."""
    if table.is_dir():
        return sorted((table / "img").iterdir())
    lines = table.read_text().splitlines()
    return [table.parent / json.loads(line)["image"] for line in lines]


def run_pool(
    images: Sequence[Path], folder: Path, *, workers: int, max_side: int, encode_all: bool = False
) -> None:
    """Runs what a team writes by hand: a pool that decodes, turns, fits, encodes and saves.

    Unless `encode_all` is set, it keeps the bytes of JPEG files in which nothing has to change.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    convert = partial(_convert, max_side=max_side, encode_all=encode_all)
    tasks = [(path, folder / f"{number}.jpg") for number, path in enumerate(images)]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for _ in pool.imap_unordered(convert, tasks, chunksize=8):
            pass


def _convert(task: tuple[Path, Path], *, max_side: int, encode_all: bool) -> None:
    source, target = task
    data = source.read_bytes()
    image: Image.Image = Image.open(io.BytesIO(data))
    scale = min(1.0, max_side / max(image.size))
    upright = image.getexif().get(ORIENTATION, 1) == 1
    nothing_changes = image.format == "JPEG" and scale == 1 and upright
    if nothing_changes and image.mode in ("L", "RGB") and not encode_all:
        image.load()
        target.write_bytes(data)
        return
    image = ImageOps.exif_transpose(image)
    image = image.convert("L" if image.mode == "L" else "RGB")
    image.thumbnail((max_side, max_side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY)
    target.write_bytes(buffer.getvalue())


def run_build(table: Path, output: Path, *, workers: int, max_side: int) -> None:
    """Runs the build as a user does."""
    shutil.rmtree(output, ignore_errors=True)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "beam_jobs.build",
            "--input",
            str(table),
            "--output",
            str(output),
            "--max-side",
            str(max_side),
            "--quality",
            str(QUALITY),
            "--workers",
            str(workers),
            "--quiet",
            "--max-bad-fraction",
            "0",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def run_empty_job(workers: int) -> None:
    """Runs a job without work: Beam starts its workers and stops them."""
    subprocess.run(
        [sys.executable, "-m", "benchmarks.harness.empty_job", str(workers)],
        check=True,
        stderr=subprocess.DEVNULL,
    )


def _plain(runs: dict[str, list[Run]]) -> dict[str, list[dict[str, float]]]:
    return {name: [asdict(run) for run in each] for name, each in runs.items()}


if __name__ == "__main__":
    sys.exit(main())
