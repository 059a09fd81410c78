"""Images/s of reading a dataset directory, and the share of each stage in the time.

Each stage is timed with all before it, in a process of its own; the time it adds is its share.
Beside it, in the same rounds, come the same pipeline with its shards read in sequence through a
shuffle buffer, which tells what the exact order costs; its decoding alone, of records in memory,
which no TensorFlow pipeline with this output can pass; and libjpeg-turbo with a resize, in
processes that do nothing else. A line says whether pixels were copied, in which case reading,
parsing and decoding are one stage. `--sweep` times the whole for each of several values of an
option instead; of `data-dir`, for the same receipts stored in several ways; of `allocator`, with
memory from "tensorflow", as tillroll chooses, from the C library ("system"), or from a shared
library, such as tcmalloc, by its path; of `services`, with batches made "here" or by data services
that run already. What these take of processors and memory is not counted then.
"""

import importlib
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import tensorflow as tf

from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.contenders import SHUFFLE_BUFFER, Training, reader_of, up_to
from benchmarks.harness.input_options import add_input_options, add_measuring_options, training_run
from benchmarks.harness.timing import (
    Contender,
    Effort,
    Result,
    by_turns,
    error_bars,
    machine,
    table,
    to_json,
)
from benchmarks.peers.output import Output
from benchmarks.peers.registry import PEERS
from benchmarks.peers.stored import read_manifest, storage
from pipeline.input.services import check_services
from pipeline.records.info import load_info
from schemas.command_line import CommandParser

SWEEPS = (
    "batch-size",
    "parallel-reads",
    "parallel-decodes",
    "block-length",
    "channels",
    "size",
    "replicas",
    "workers",
    "data-dir",
    "allocator",
    "services",
)
HERE = "here"
ALLOCATORS: Mapping[str, Mapping[str, str]] = {
    "tensorflow": {},
    "system": {"TF_CPU_ALLOCATOR_USE_BFC": "false"},
}
IN_SEQUENCE = f"in sequence, shuffle buffer of {SHUFFLE_BUFFER:,}"
IN_MEMORY = "decoding alone, records in memory"
CEILING = "ceiling: libjpeg-turbo and a resize"
_CEILING_IMAGES = 500


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = _parser()
    args = parser.parse(argv)
    if bool(args.sweep) != bool(args.values):
        parser.error("--sweep NAME and --values N … belong together")
    try:
        effort = Effort(batch_size=args.batch_size, batches=args.batches, warmup=args.warmup)
        run = training_run(args, replicas=args.replicas, workers=args.workers)
        if args.sweep:
            runs = {value: swept(run, args.sweep, value) for value in args.values}
            contenders = {name: up_to("device", each) for name, each in runs.items()}
            if args.sweep == "allocator":
                contenders = {name: from_allocator(contenders[name], name) for name in runs}
            efforts = {name: _as_many_images(effort, each) for name, each in runs.items()}
        else:
            runs = {"": run}
            contenders = ladder(run)
            efforts = dict.fromkeys(contenders, effort)
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="tillroll-ceiling-") as folder:
        beside, missing = ({}, "") if args.sweep else others(run, Path(folder))
        efforts |= dict.fromkeys(beside, effort)
        rounds = by_turns(contenders | beside, efforts, rounds=args.rounds)
    results = {name: Result.of(rounds[name]) for name in contenders}
    rows = sweep_rows(args.sweep, results) if args.sweep else ladder_rows(results)
    print(table(rows))
    besides = []
    if beside:
        measured = {"this": results["device"]} | {name: Result.of(rounds[name]) for name in beside}
        besides = sweep_rows("beside", measured)
        print("", table(besides), *([missing] if missing else []), sep="\n")
    print("\n".join(reader_lines(runs)))
    print(", ".join(machine().values()))
    if args.json:
        options = {name: str(value) for name, value in vars(args).items()}
        args.json.write_text(
            to_json({"options": options, "results": rows, "beside": besides, "missing": missing})
        )
    if args.plot:
        draw(rows, str(args.plot), args.sweep)
    return 0


def _parser() -> CommandParser:
    parser = benchmark_parser("input_throughput", "DATA_DIR", __doc__)
    add_input_options(parser)
    parser.add_argument(
        "--replicas",
        type=int,
        default=1,
        metavar="N",
        help="number of logical CPUs of a MirroredStrategy (default: 1)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="number of processes of a MultiWorkerMirroredStrategy (default: 1)",
    )
    add_measuring_options(parser, batches=60, rounds=5)
    parser.add_argument(
        "--sweep",
        choices=SWEEPS,
        metavar="OPTION",
        help=f"compare several values of an option, one of {', '.join(SWEEPS)}; each of several "
        "replicas or workers gets batches of --global-batch-size (default: none)",
    )
    parser.add_argument(
        "--values",
        nargs="+",
        metavar="VALUE",
        help="values that --sweep compares; of services, the addresses of running ones with commas "
        f"between them, or {HERE} for none (default: none)",
    )
    return parser


def reader_lines(runs: Mapping[str, Training]) -> list[str]:
    """Makes a sentence on the reader of all runs, or one for each where they have several."""
    sentences = {name: reader_of(run) for name, run in runs.items()}
    if len(set(sentences.values())) == 1:
        return [next(iter(sentences.values()))]
    return [f"{name}: {sentence}" for name, sentence in sentences.items()]


def ladder(run: Training) -> dict[str, Contender]:
    """Returns a contender for each stage, augmentation included."""
    plain = replace(run, config=replace(run.config, augmentations=()))
    contenders = {
        stage: up_to(stage, plain) for stage in ("plan", "read", "parse", "decode", "batch")
    }
    if run.config.augmentations:
        contenders["augment"] = up_to("batch", run)
    return {**contenders, "device": up_to("device", run)}


def others(run: Training, folder: Path) -> tuple[dict[str, Contender], str]:
    """Returns contenders to compare the whole with, and a reason if the ceiling is not among them.

    Args:
      run: the input.
      folder: for the ceiling's files, some of the dataset's.
    """
    found = {
        IN_SEQUENCE: up_to("device", replace(run, order="sequence")),
        IN_MEMORY: up_to("decode", replace(run, order="memory")),
    }
    config = run.config
    if "://" in run.data_dir:
        return found, "no ceiling: it needs the receipts on this machine"
    if storage(read_manifest(run.data_dir)) != "jpeg":
        return found, "no ceiling: pixels need no decoding"
    try:
        ceiling = importlib.import_module("benchmarks.peers.ceiling")
    except ImportError as error:
        return found, f"no ceiling: {error}; to have it: {PEERS['ceiling'].install}"
    ceiling.prepare(run.data_dir, folder, count=_CEILING_IMAGES)
    output = Output(
        batch_size=run.batch_size,
        height=config.height,
        width=config.width,
        channels=config.channels,
        fit="stretch" if config.fit == "stretch" else "pad",  # its option has no other choice
        dtype=config.dtype,
    )
    found[CEILING] = Contender(
        function="benchmarks.peers.ceiling:batches",
        options={"folder": folder, "output": output, "workers": len(os.sched_getaffinity(0))},
    )
    return found, ""


def swept(run: Training, name: str, text: str) -> Training:
    """Returns the run with another value of an option of `SWEEPS`.

    Raises:
      ValueError: the option can't have this value.
      FileNotFoundError: the directory is not a finished dataset.
    """
    if name == "data-dir":
        load_info(text)
        return replace(run, data_dir=text)
    if name == "allocator":
        return run
    if name == "services":
        services = () if text == HERE else tuple(text.split(","))
        check_services(tf.distribute.get_strategy(), services)
        return replace(run, services=services)
    if not text.isdecimal():
        raise ValueError(f"--values of {name} must be whole numbers, got {text!r}")
    value = int(text)
    if name == "batch-size":
        return replace(run, batch_size=value)
    if name in ("replicas", "workers"):
        whole: dict[str, Any] = {name: value, "batch_size": run.batch_size * value}
        return replace(run, **whole)
    config = run.config
    field = name.replace("-", "_")
    images: dict[str, Any] = {"size": {"height": value, "width": value}}.get(name, {field: value})
    if name in ("parallel-reads", "block-length"):
        return _with_reading(run, **{field: value})
    return replace(run, config=replace(config, **images))


def _with_reading(run: Training, **options: Any) -> Training:
    reading = replace(run.config.reading, **options)
    return replace(run, config=replace(run.config, reading=reading))


def from_allocator(contender: Contender, name: str) -> Contender:
    """Returns the contender with its memory from one of `ALLOCATORS`, or from a shared library.

    Raises:
      ValueError: there is no such file.
    """
    if name not in ALLOCATORS and not Path(name).is_file():
        raise ValueError(
            f"allocator {name!r} is not a file: give {' or '.join(ALLOCATORS)}, or the path of a "
            "shared library (Debian's libtcmalloc-minimal4 has libtcmalloc_minimal.so.4)"
        )
    preloaded = {**ALLOCATORS["system"], "LD_PRELOAD": name}
    return replace(contender, environment=ALLOCATORS.get(name, preloaded))


def _as_many_images(effort: Effort, run: Training) -> Effort:
    batches = max(1, effort.batches * effort.batch_size // run.batch_size)
    return replace(effort, batch_size=run.batch_size, batches=batches)


def ladder_rows(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Makes a row for each stage; shares are of the time and processor time of the last stage."""
    last = list(results.values())[-1]
    last_cpu_ms = last.cpu_ms_per_image or 1.0  # so short a run that none was counted
    rows, before_ms, before_cpu_ms = [], 0.0, 0.0
    for name, result in results.items():
        each_ms = 1e3 / result.images_per_s
        rows.append(
            {
                "up to": name,
                "images/s": result.images_per_s,
                "lowest": result.lowest,
                "highest": result.highest,
                "adds ms/image": each_ms - before_ms,
                "share": (each_ms - before_ms) * last.images_per_s / 1e3,
                "CPU ms/image": result.cpu_ms_per_image,
                "share of CPU": (result.cpu_ms_per_image - before_cpu_ms) / last_cpu_ms,
                "first batch s": result.first_batch_s,
                "peak MB": result.peak_mb,
            }
        )
        before_ms, before_cpu_ms = each_ms, result.cpu_ms_per_image
    return rows


def sweep_rows(name: str, results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Makes a row for each value; `ratio` is to the first."""
    first = next(iter(results.values()))
    return [{name: value, **result.columns(first)} for value, result in results.items()]


def draw(rows: Sequence[Mapping[str, Any]], path: str, sweep: str | None) -> None:
    """Draws the rows: what each stage adds to the time of an image, or images/s by value."""
    # Not above: the processes that are timed import this module, and their memory counts.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.5), layout="constrained")
    axes = figure.subplots()
    names = [str(next(iter(row.values()))) for row in rows]
    if sweep:
        speeds = [row["images/s"] for row in rows]
        axes.bar(names, speeds, yerr=error_bars(rows), capsize=4)
        axes.set(xlabel=sweep, ylabel="images/s")
    else:
        before = 0.0
        for name, row in zip(names, rows, strict=True):
            axes.barh(name, row["adds ms/image"], left=before)
            before += row["adds ms/image"]
        axes.invert_yaxis()
        axes.set(xlabel="ms per image, up to each stage")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
