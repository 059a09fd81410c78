"""Seconds to the first batch of a run that is resumed far on, beside one that starts.

Each start is a process of its own, timed from the call that makes the dataset, TensorFlow being
imported. Starts and resumed runs take turns; the figure is the ratio of the medians.
"""

import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.contenders import up_to
from benchmarks.harness.input_options import add_input_options, add_measuring_options, training_run
from benchmarks.harness.timing import Effort, Round, by_turns, machine, table, to_json


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = benchmark_parser("resume_latency", "DATA_DIR", __doc__)
    add_input_options(parser)
    parser.add_argument(
        "--steps",
        type=int,
        nargs="+",
        default=[1_000, 1_000_000],
        metavar="N",
        help="steps at which runs are resumed (default: 1000 1000000)",
    )
    add_measuring_options(parser, rounds=5)
    args = parser.parse(argv)
    try:
        if min(args.steps) < 0:
            raise ValueError(f"--steps must be at least 0, got {min(args.steps)}")
        run = training_run(args)
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    contenders = {
        f"{step:,}": up_to("device", replace(run, start_step=step)) for step in (0, *args.steps)
    }
    effort = Effort(batch_size=args.batch_size, batches=1)
    rounds = by_turns(contenders, dict.fromkeys(contenders, effort), rounds=args.rounds)
    rows = latency_rows(rounds)
    print(table(rows))
    print(", ".join(machine().values()))
    if args.json:
        args.json.write_text(to_json({"results": rows}))
    return 0


def latency_rows(rounds: Mapping[str, Sequence[Round]]) -> list[dict[str, Any]]:
    """A row for each step; `ratio` is to the first, a fresh start."""
    times_s = {step: [one.first_batch_s for one in found] for step, found in rounds.items()}
    start_s = statistics.median(next(iter(times_s.values())))
    return [
        {
            "start step": step,
            "first batch s": statistics.median(each),
            "lowest": min(each),
            "highest": max(each),
            "ratio": statistics.median(each) / start_s,
        }
        for step, each in times_s.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
