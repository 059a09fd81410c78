"""One model on one dataset under each strategy: images/s, seconds to a loss, and how good it gets.

Every run is `python -m pipeline.train` as a user starts it, all its processes on this machine, one
run after the other. Seconds are those of training steps: starting, compiling and evaluating is left
out. Strategies that share two cores can't be faster than one that has them alone; what this shows
is what each costs, and that all learn the same.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.local_cluster import run_cluster
from benchmarks.harness.timing import machine, table, to_json
from schemas.command_line import CommandParser


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Processes of a strategy.

    Attributes:
      strategy: its name.
      cpus: logical devices of each process.
      tasks: how many processes there are of each kind of TF_CONFIG; none for a single one.
    """

    strategy: str
    cpus: int = 1
    tasks: Mapping[str, int] | None = None


SETUPS = {
    "default": Setup(strategy="default"),
    "one_device": Setup(strategy="one_device"),
    "mirrored-2": Setup(strategy="mirrored", cpus=2),
    "mirrored-4": Setup(strategy="mirrored", cpus=4),
    "multi_worker-2": Setup(strategy="multi_worker", tasks={"worker": 2}),
    "parameter_server-2": Setup(
        strategy="parameter_server", tasks={"chief": 1, "worker": 2, "ps": 1}
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = benchmark_parser(
        "strategies",
        "DATA_DIR",
        __doc__,
        epilog="All other options are those of python -m pipeline.train.",
    )
    add_training_options(parser, steps=200)
    parser.add_argument(
        "--setups",
        nargs="+",
        choices=SETUPS,
        default=list(SETUPS),
        metavar="NAME",
        help=f"strategies to run, of {', '.join(SETUPS)} (default: all)",
    )
    parser.add_argument(
        "--loss",
        type=float,
        default=1.0,
        metavar="X",
        help="loss to which the seconds are counted (default: %(default)s)",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the losses to this PNG file"
    )
    args, others = parser.parse_known_args(argv)
    logs = {}
    with tempfile.TemporaryDirectory(prefix="strategies-") as folder:
        for name in args.setups:
            print(f"{name} …", file=sys.stderr)
            logs[name] = train(SETUPS[name], args, Path(folder, name), others)
    rows = [
        {"strategy": name, **figures(log, args.global_batch_size, args.loss)}
        for name, log in logs.items()
    ]
    print(table(rows))
    print(", ".join(machine().values()))
    if args.json:
        args.json.write_text(to_json({"results": rows, "logs": logs}))
    if args.plot:
        draw(logs, args.global_batch_size, args.plot)
    return 0


def add_training_options(parser: CommandParser, *, steps: int) -> None:
    """Adds the dataset, and options of runs that are compared with one another."""
    parser.add_argument("data_dir", metavar="DATA_DIR", help="dataset directory")
    parser.add_argument(
        "--steps",
        type=int,
        default=steps,
        metavar="STEPS",
        help="training steps of each run (default: %(default)s)",
    )
    parser.add_argument(
        "--global-batch-size",
        type=int,
        default=32,
        metavar="RECORDS",
        help="size of a global batch (default: %(default)s)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the figures to this file"
    )


def train(
    setup: Setup,
    args: argparse.Namespace,
    run_dir: Path,
    others: Sequence[str],
    *,
    program: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Trains under a strategy, and waits for all its processes.

    Args:
      setup: the processes.
      args: options of `add_training_options`.
      run_dir: the run folder.
      others: further arguments of `pipeline.train`.
      program: a module that runs it, with arguments of its own; none for `logical_train`.

    Returns:
      The lines of the run's log.

    Raises:
      SystemExit: one of them failed.
    """
    program = program or ("benchmarks.harness.logical_train", str(setup.cpus))
    arguments = [args.data_dir, f"--run-dir={run_dir}", f"--steps={args.steps}"]
    arguments += [f"--global-batch-size={args.global_batch_size}", "--quiet", *others]
    command = ["-m", *program, *arguments, f"--strategy={setup.strategy}"]
    print(run_cluster(command, setup.tasks or {}, name=setup.strategy), end="")
    return [json.loads(line) for line in (run_dir / "log.jsonl").open()]


def figures(log: Sequence[Mapping[str, float]], batch_size: int, loss: float) -> dict[str, Any]:
    """Summarizes the log of a run; seconds to the loss are NaN if it was not reached."""
    steps = [line for line in log if "loss" in line]
    reached = [seconds for seconds, found in curve(log, batch_size) if found <= loss]
    evaluations = [line for line in log if "validation/loss" in line]
    validation = {name: value for name, value in evaluations[-1].items() if name.count("/") == 1}
    return {
        # The first calls compile.
        "images/s": statistics.median(line["images_per_s"] for line in steps[1:] or steps),
        f"s to loss {loss:g}": reached[0] if reached else float("nan"),
        "loss": steps[-1]["loss"],
        **validation,
    }


def curve(log: Sequence[Mapping[str, float]], batch_size: int) -> list[tuple[float, float]]:
    """Seconds of training and the loss then, after each call of the devices but the first."""
    points, seconds, before = [], 0.0, None
    for line in log:
        if "loss" not in line:
            continue
        if before is not None:
            seconds += (line["step"] - before) * batch_size / line["images_per_s"]
            points.append((seconds, line["loss"]))
        before = line["step"]
    return points


def draw(logs: Mapping[str, Sequence[Mapping[str, float]]], batch_size: int, path: Path) -> None:
    """Draws each run's loss over its seconds."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for name, log in logs.items():
        axes.plot(*zip(*curve(log, batch_size), strict=True), label=name, linewidth=1.2)
    axes.set(xlabel="seconds of training", ylabel="loss", ylim=(0, None))
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
