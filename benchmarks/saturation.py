"""Simulation of an accelerator: the time it waits for input, and what would have to change.

The simulated accelerator is busy with a batch for as long as a step takes. Meanwhile the host
fetches the next batch, as it does beside a real one; if that is not there in time, the accelerator
waits. Before that, the stages of the pipeline are timed, each with all before it, and a sentence
names the slowest of them, or the step.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import tensorflow as tf

from benchmarks.harness import timing
from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.contenders import Training, distributed, reader_of, up_to
from benchmarks.harness.input_options import add_input_options, add_measuring_options, training_run
from benchmarks.harness.timing import Effort, Result, by_turns, machine, table, to_json
from pipeline.distribution import strategies
from pipeline.distribution.host_memory import keep_host_memory
from schemas.command_line import CommandParser

STAGES = {
    "read": "reading",
    "decode": "decoding",
    "batch": "augmentation",
    "device": "handing batches to the replicas",
}


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Result of simulated steps.

    Attributes:
      wait_share: part of the time that the accelerator waited for input.
      waits_ms: of each step.
      ready: batches that were ready when each was asked for.
    """

    wait_share: float
    waits_ms: tuple[float, ...]
    ready: tuple[int, ...]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = _parser()
    args = parser.parse(argv)
    for name in ("step_ms", "images_per_s", "load"):
        value = getattr(args, name)
        if value is not None and not value > 0:
            parser.error(f"--{name.replace('_', '-')} must be above 0, got {value}")
    try:
        effort = Effort(batch_size=args.batch_size, batches=args.batches, warmup=args.warmup)
        run = training_run(
            args,
            replicas=args.replicas,
            slow_reading_ms=args.slow_reading,
            slow_decoding_ms=args.slow_decoding,
        )
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    stages = {stage: up_to(stage, run) for stage in STAGES}
    rounds = by_turns(stages, dict.fromkeys(stages, effort), rounds=args.rounds)
    results = {name: Result.of(each) for name, each in rounds.items()}
    step_s = _step_s(args, highest=results["device"].images_per_s)
    steps = timing.in_new_process(_steps, run, effort, step_s)
    _report(args, results, step_s, steps, reader=reader_of(run))
    return 0


def _parser() -> CommandParser:
    parser = benchmark_parser("saturation", "DATA_DIR", __doc__)
    add_input_options(parser)
    group = parser.add_argument_group("simulated accelerator")
    group.add_argument(
        "--replicas",
        type=int,
        default=1,
        metavar="N",
        help="number of replicas (default: %(default)s)",
    )
    speed = group.add_mutually_exclusive_group()
    speed.add_argument(
        "--step-ms",
        type=float,
        metavar="MS",
        help="time of a step in milliseconds (default: set by --load)",
    )
    speed.add_argument(
        "--images-per-s",
        type=float,
        metavar="X",
        help="images that each replica takes per second (default: set by --load)",
    )
    speed.add_argument(
        "--load",
        type=float,
        default=0.8,
        metavar="FRACTION",
        help="images/s, as a fraction of what the input pipeline makes at most "
        "(default: %(default)s)",
    )
    slow = parser.add_argument_group("what if a stage were slower")
    slow.add_argument(
        "--slow-reading",
        type=float,
        default=0.0,
        metavar="MS",
        help="waiting that is added to reading an image, in milliseconds (default: 0)",
    )
    slow.add_argument(
        "--slow-decoding",
        type=float,
        default=0.0,
        metavar="MS",
        help="computing that is added to decoding an image, in milliseconds (default: 0)",
    )
    add_measuring_options(parser, batches=100, rounds=3)
    return parser


def _step_s(args: argparse.Namespace, *, highest: float) -> float:
    """Seconds of a step, by the options; `highest` is the images/s of the input pipeline."""
    if args.step_ms:
        return args.step_ms / 1e3
    if args.images_per_s:
        return args.batch_size / (args.images_per_s * args.replicas)
    return args.batch_size / (highest * args.load)


def _report(
    args: argparse.Namespace,
    results: Mapping[str, Result],
    step_s: float,
    steps: Steps,
    *,
    reader: str,
) -> None:
    wanted = args.batch_size / step_s
    sentence = verdict(
        {name: result.images_per_s for name, result in results.items()},
        wanted=wanted,
        cpu_ms_per_image=results["device"].cpu_ms_per_image,
        replicas=args.replicas,
    )
    print(table([{"up to": name, **asdict(result)} for name, result in results.items()]))
    replicas = f"{args.replicas} replicas" if args.replicas > 1 else "1 replica"
    print(
        f"steps of {step_s * 1e3:,.1f} ms on {replicas}, {wanted:,.0f} "
        f"images/s: {steps.wait_share:.1%} of the time is spent waiting for input, at least "
        f"{min(steps.ready)} and at most {max(steps.ready)} batches ready"
    )
    print(sentence)
    print(reader)
    print(", ".join(machine().values()))
    if args.json:
        args.json.write_text(
            to_json(
                {
                    "options": {k: str(v) for k, v in vars(args).items()},
                    "stages": {name: asdict(result) for name, result in results.items()},
                    "steps": asdict(steps),
                    "verdict": sentence,
                }
            )
        )
    if args.plot:
        draw(steps, args.plot)


def verdict(
    rates: Mapping[str, float], *, wanted: float, cpu_ms_per_image: float, replicas: int
) -> str:
    """Names the limit, the step or a stage of the input, and what would have to change.

    Args:
      rates: images/s up to each of `STAGES`.
      wanted: images/s that the accelerators take.
      cpu_ms_per_image: processor time of the whole input pipeline.
      replicas: accelerators.
    """
    highest = rates["device"]
    cores = wanted / replicas * cpu_ms_per_image / 1e3
    needs = f"a replica needs {cores:.2f} cores for its {wanted / replicas:,.0f} images/s"
    if highest >= wanted:
        return (
            f"The step limits: the input pipeline could give {highest / wanted:.2f} times as much; "
            f"{needs}."
        )
    limiting = limiting_stage(rates)
    remedy = f"images of {highest / wanted:.0%} of the pixels would do on these"
    if limiting == "read":
        remedy = "longer blocks, more parallel reads or faster storage would help"
    elif limiting == "batch":
        remedy = "augmentation on the device would help"
    return (
        f"{STAGES[limiting].capitalize()} limits: {highest:,.0f} of {wanted:,.0f} images/s; "
        f"{needs}, and {remedy}."
    )


def limiting_stage(rates: Mapping[str, float]) -> str:
    """The stage that adds the most to the time of an image."""
    times_s = [0.0, *(1 / rate for rate in rates.values())]
    added = {name: times_s[at + 1] - times_s[at] for at, name in enumerate(rates)}
    return max(added, key=added.__getitem__)


def simulate(
    batches: Iterator[Any],
    step_s: float,
    steps: int,
    *,
    produced: Callable[[], int],
    consumed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Steps:
    """Takes steps of so many seconds, each once its batch is there and the step before is done.

    Args:
      batches: an iterator over batches.
      step_s: seconds that a step takes.
      steps: how many.
      produced: batches made so far.
      consumed: batches taken before.
      clock: seconds.
      sleep: passes so many seconds.
    """
    waits, ready = [], []
    started = free = clock()
    for number in range(steps):
        ready.append(produced() - consumed - number)
        next(batches)
        here = clock()
        begin = max(here, free)
        waits.append(begin - free)
        free = begin + step_s
        if begin > here:
            sleep(begin - here)  # the host is a step ahead, and no more
    return Steps(
        wait_share=sum(waits) / (free - started),
        waits_ms=tuple(each * 1e3 for each in waits),
        ready=tuple(ready),
    )


def _steps(run: Training, effort: Effort, step_s: float) -> Steps:
    keep_host_memory()
    strategies.make_logical_cpus(run.replicas)
    produced = tf.Variable(0, dtype=tf.int64)
    batches = distributed(run, produced=produced)
    for _ in range(effort.warmup):
        next(batches)
        time.sleep(step_s)
    return simulate(
        batches,
        step_s,
        effort.batches,
        produced=lambda: int(produced.numpy()) // run.replicas,
        consumed=effort.warmup,
    )


def draw(steps: Steps, path: Path) -> None:
    """Draws how many batches were ready, and how long each step waited."""
    # Not above: the processes that are timed import this module, and their memory counts.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    above.step(range(len(steps.ready)), steps.ready)
    above.set(ylabel="batches ready", ylim=(0, None))
    below.plot(steps.waits_ms)
    below.set(xlabel="step", ylabel="wait, ms", ylim=(0, None))
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
