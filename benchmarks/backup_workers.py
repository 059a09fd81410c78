"""Backup workers: seconds of a step, and the loss, where workers are late now and then.

Each run is `python -m pipeline.train` on parameter servers, all its processes on this machine, one
run after the other. A worker sleeps for each gradient, and with a given probability many times as
long, so what is measured is the waiting and not this machine's cores. "asynchronous" is the plain
strategy: its workers take whole global batches, so each sleeps as many times as long as there are
workers. Beside each run stands what a simulation without any overhead says.
"""

import itertools
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.stragglers import Delays, simulate_step_s
from benchmarks.harness.timing import machine, table, to_json
from benchmarks.strategies import Setup, add_training_options, train
from schemas.command_line import Flag, Options

ASYNCHRONOUS = "asynchronous"
_SIMULATED_STEPS = 20_000
_DELAYS = Options(
    Delays,
    step_s=Flag(metavar="SECONDS"),
    probability=Flag(metavar="SHARE"),
    factor=Flag(metavar="TIMES"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = benchmark_parser(
        "backup_workers",
        "DATA_DIR",
        __doc__,
        epilog="All other options are those of python -m pipeline.train.",
    )
    add_training_options(parser, steps=500)
    parser.add_argument(
        "--workers",
        type=int,
        default=4,
        metavar="N",
        help="workers that a step waits for (default: %(default)s)",
    )
    parser.add_argument(
        "--backups",
        type=int,
        nargs="+",
        default=[0, 1, 2],
        metavar="B",
        help="numbers of further workers, the first one to compare with (default: 0 1 2)",
    )
    _DELAYS.add_to(parser)
    args, others = parser.parse_known_args(argv)
    try:
        delays = _DELAYS.make(args)
        if args.workers < 1:
            raise ValueError(f"--workers must be at least 1, got {args.workers}")
        if min(args.backups) < 0:
            raise ValueError(f"--backups must be at least 0, got {min(args.backups)}")
    except ValueError as error:
        parser.error(str(error))
    rows = []
    with tempfile.TemporaryDirectory(prefix="backup-workers-") as folder:
        for backups in (None, *args.backups):
            name = ASYNCHRONOUS if backups is None else str(backups)
            print(f"backup workers: {name} …", file=sys.stderr)
            setup, program = processes(args.workers, backups, delays)
            more = [] if backups is None else [f"--backup-workers={backups}"]
            run_dir = Path(folder, name)
            log = train(setup, args, run_dir, [*others, *more], program=program)
            simulated_s = simulate(args.workers, backups, delays)
            rows.append(
                {
                    "backup workers": name,
                    "s a step": seconds_of_step(log, args.global_batch_size),
                    "simulated": simulated_s,
                    **figures(log),
                }
            )
    compared = rows[1]
    for row in rows:
        row["of no backup"] = row["s a step"] / compared["s a step"]
        row["loss of no backup"] = row["loss"] / compared["loss"]
    print(table(rows))
    print(", ".join(machine().values()))
    if args.json:
        args.json.write_text(to_json({"delays": vars(delays), "results": rows}))
    return 0


def processes(workers: int, backups: int | None, delays: Delays) -> tuple[Setup, list[str]]:
    """Returns the processes of a run, and the program that they run; None is asynchronous."""
    if backups is None:
        # Four workers that each take whole batches sleep four times as long for each.
        delays = replace(delays, step_s=delays.step_s * workers)
    tasks = {"chief": 1, "worker": workers + (backups or 0), "ps": 1}
    program = ["benchmarks.harness.delayed_train"]
    program += [str(value) for value in (delays.step_s, delays.probability, delays.factor)]
    return Setup(strategy="parameter_server", tasks=tasks), program


def simulate(workers: int, backups: int | None, delays: Delays) -> float:
    """Simulates the mean seconds of a step."""
    if backups is None:
        return delays.mean_s
    rng = np.random.default_rng(0)
    return simulate_step_s(workers, backups, lambda: delays.draw(rng), steps=_SIMULATED_STEPS)


def seconds_of_step(log: Sequence[Mapping[str, float]], batch_size: int) -> float:
    """Computes the mean seconds of a step, over all calls but the first, which compiles."""
    lines = [line for line in log if "loss" in line]
    seconds = steps = 0.0
    for before, line in itertools.pairwise(lines):
        taken = line["step"] - before["step"]
        seconds += taken * batch_size / line["images_per_s"]
        steps += taken
    return seconds / steps


def figures(log: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Returns the dropped gradients a step, if there may be any, and the loss at the end."""
    lines = [line for line in log if "loss" in line]
    [loss] = [line["validation/loss"] for line in log if "validation/loss" in line]
    dropped = sum(line.get("dropped_gradients", 0) for line in lines)
    return {"dropped a step": dropped / lines[-1]["step"], "loss": loss}


if __name__ == "__main__":
    sys.exit(main())
