"""Scaling of a search: how much sooner several workers end it than one, on simulated trials.

A simulated trial takes as long as its steps, which sleep, and reports an evaluation after each; it
imports no TensorFlow. All else is `pipeline.search`'s own: the study, claims and heartbeats.
Workers are processes of this machine. Their start, most of it imports of Python modules that share
the machine's cores and on machines of their own would not, is a column of its own; the search is
timed from the moment at which all have started to the end of the last one. The ratio of perfect
workers follows from the number of rounds: 39 trials take 13 workers three.
"""

import argparse
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.distributions import FloatDistribution

from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.timing import machine, table, to_json
from pipeline.searching.claims import ClaimOptions
from pipeline.searching.definition import LOSS, Definition
from pipeline.searching.outcome import Outcome
from pipeline.searching.study import SearchStudy, StudyOptions
from pipeline.searching.worker import work
from schemas.command_line import Flag, Options


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """Options of simulated trials.

    Attributes:
      trials: number of trials of a study.
      steps: steps of a trial.
      step_s: seconds that a step takes.
      storage: URL of a database for the studies; None for a file.
    """

    trials: int = 39
    steps: int = 10
    step_s: float = 1.0
    storage: str | None = None

    def __post_init__(self) -> None:
        for name in ("trials", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.step_s < math.inf:
            raise ValueError(f"step_s must be above 0, got {self.step_s}")


_SIMULATED = Options(
    Simulation,
    step_s=Flag(metavar="SECONDS"),
    storage=Flag(metavar="URL", default="a file"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = benchmark_parser("search_scaling", "", __doc__)
    parser.add_argument(
        "--workers",
        type=int,
        nargs="+",
        default=[1, 13],
        metavar="N",
        help="numbers of workers, the first one to compare with (default: 1 13)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    _SIMULATED.add_to(parser)
    # Of the workers that this program starts.
    parser.add_argument("--work-in", type=Path, help=argparse.SUPPRESS)
    args = parser.parse(argv)
    try:
        options = _SIMULATED.make(args)
        if min(args.workers) < 1:
            raise ValueError(f"--workers must be at least 1, got {min(args.workers)}")
    except ValueError as error:
        parser.error(str(error))
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if args.work_in:
        return work_in(args.work_in, options)
    with tempfile.TemporaryDirectory() as folder:
        timings = {
            count: time_search(Path(folder, f"workers-{number}-{count}"), count, options)
            for number, count in enumerate(args.workers)
        }
    rows = scaling_rows(timings, options)
    print(table(rows))
    print(", ".join(machine().values()))
    if args.json:
        args.json.write_text(to_json({"options": asdict(options), "results": rows}))
    return 0


class Timing(NamedTuple):
    """Seconds that workers took to start, and then to search."""

    start_s: float
    search_s: float


def scaling_rows(timings: Mapping[int, Timing], options: Simulation) -> list[dict[str, Any]]:
    """Makes a row for each number of workers; ratios are to the first one."""
    first = next(iter(timings))
    rounds = {count: math.ceil(options.trials / count) for count in timings}
    return [
        {
            "workers": count,
            "start s": timing.start_s,
            "search s": timing.search_s,
            "times sooner": timings[first].search_s / timing.search_s,
            "with start": sum(timings[first]) / sum(timing),
            "perfect": rounds[first] / rounds[count],
        }
        for count, timing in timings.items()
    ]


def time_search(folder: Path, workers: int, options: Simulation) -> Timing:
    """Runs a search with as many workers.

    Raises:
      RuntimeError: a worker failed, or the study has not as many complete trials as it should.
    """
    study = open_study(folder, options)
    flags = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in asdict(options).items()
        if value is not None
    ]
    command = [sys.executable, "-m", "benchmarks.search_scaling", f"--work-in={folder}", *flags]
    began = time.monotonic()
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(workers)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()  # it has started, or ended
    started = time.monotonic()
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    failed = [process.pid for process in processes if process.wait()]
    ended = time.monotonic()
    complete = [trial for trial in study.frozen_trials() if trial.value is not None]
    if failed or len(complete) != options.trials:
        raise RuntimeError(f"workers {failed} failed, {len(complete)} trials are complete")
    return Timing(started - began, ended - started)


def work_in(folder: Path, options: Simulation) -> int:
    """Works on the study of a folder to its end, once standard input is closed."""
    study = open_study(folder, options)
    print("started", flush=True)
    sys.stdin.read()
    is_done = work(study, sleeping_trial(options), ClaimOptions())
    return 0 if is_done else 1


def open_study(folder: Path, options: Simulation) -> SearchStudy:
    """Opens the study of a folder, and makes it where there is none."""
    study = SearchStudy(
        folder,
        StudyOptions(
            trials=options.trials,
            storage=options.storage,
            study=f"{folder.parent.name}-{folder.name}",
            pruner="none",
        ),
    )
    space = {"learning_rate": FloatDistribution(1e-4, 1e-1, log=True)}
    definition = Definition(space=space, objective=LOSS, digest="none", version=1, options={})
    study.define(definition, first={})
    return study


def sleeping_trial(options: Simulation) -> Callable[..., Outcome]:
    """Makes what runs a trial: steps that sleep, and a loss that falls with them."""

    def run(
        trial: optuna.Trial,
        values: dict[str, Any],
        folder: Path,
        should_stop: Callable[[], bool],
    ) -> Outcome:
        best = abs(math.log10(values["learning_rate"]) + 2)
        for step in range(1, options.steps + 1):
            if should_stop():
                return Outcome(ending="stopped", step=step)
            time.sleep(options.step_s)
            trial.report(best + 1 / step, step)
            if trial.should_prune():
                return Outcome(ending="pruned", step=step)
        return Outcome(ending="complete", value=best + 1 / step, step=step)

    return run


if __name__ == "__main__":
    sys.exit(main())
