"""Simulation of scaling past this machine: how many times faster many replicas train than one.

Measured here, unless options give other figures: a training step of one replica, its gradient, the
input pipeline, and an all-reduce between two workers of this machine. From these follow the steps
of up to a thousand replicas: in lock-step by a ring, punctual and with workers that are late now
and then; and late ones by parameter servers, without and with backup workers. The assumptions are
printed with the results.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import timing
from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.local_cluster import run_cluster
from benchmarks.harness.stragglers import Delays, simulate_step_s
from benchmarks.harness.timing import machine, table, to_json
from schemas.command_line import Flag, Options

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# As Google said of Inception when TensorFlow became distributed (version 0.8, April 2016): 100 GPUs
# trained 56 times as fast as one.
REPORTED = (100, 56.0)
ASSUMPTIONS = """\
assumptions:
- each replica has a batch of its own of the same size, so twice the replicas take twice the records
- each replica has a host, with input as fast as here, which prepares batches while steps run
- an all-reduce goes around a ring: 2 (n - 1) messages, and 2 (n - 1) / n times the gradient, at
  the latency and the bandwidth of a single connection, and not while gradients are computed
- "servers": instead of a ring, weights come and gradients go at the same bandwidth, from and to as
  many parameter servers as it takes for them not to limit, so the exchange takes the same time for
  any number of replicas; what backups give is the last of these two columns beside the first
- a gradient is late with the given probability, whatever others are; nothing fails"""
# "late" and "late, servers" lie upon each other where the network is fast.
_LINES = {
    "lock-step": "C0-",
    "late": "C3-",
    "late, servers": "C2--",
    "late, servers, backups": "C1-",
}
_SIMULATED_STEPS = 400
_SMALL = 1  # numbers of an all-reduce whose time is that of its messages
_FLOAT_BYTES = 4
_DELAYS = Options(Delays, probability=Flag(metavar="SHARE"), factor=Flag(metavar="TIMES"))


@dataclass(frozen=True, kw_only=True)
class Replica:
    """Figures of one replica and its connection, from which the simulation starts.

    Attributes:
      step_s: seconds of a training step, without waiting for input.
      input_s: seconds in which its host prepares a batch.
      gradient_bytes: size of a gradient.
      latency_s: seconds of a message.
      bytes_per_s: bandwidth of a connection.
    """

    step_s: float
    input_s: float
    gradient_bytes: float
    latency_s: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 <= value < math.inf or (name == "bytes_per_s" and not value):
                raise ValueError(f"{name} must be a number of at least 0, got {value}")

    def all_reduce_s(self, replicas: int) -> float:
        """Computes the seconds of an all-reduce.

        The source is "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations" by
        Patarasuk and Yuan (2009).
        """
        messages = 2 * (replicas - 1)
        volume = messages / replicas * self.gradient_bytes
        return messages * self.latency_s + volume / self.bytes_per_s

    def exchange_s(self) -> float:
        """Computes the seconds that weights need from parameter servers, and a gradient to them."""
        return 2 * (self.latency_s + self.gradient_bytes / self.bytes_per_s)


def speedups(
    replica: Replica, delays: Delays, replicas: int, *, backup_share: float
) -> dict[str, float]:
    """Simulates how many times faster replicas train than one.

    Args:
      replica: figures of one.
      delays: how often a gradient is late, and how much; its `step_s` does not count.
      replicas: number of replicas.
      backup_share: backup workers, as a share of the replicas; a fraction of one is one.

    Returns:
      Speed-ups by name, and the number of backup workers.
    """
    alone_s = max(replica.step_s, replica.input_s)
    delays = replace(delays, step_s=alone_s)
    backups = math.ceil(replicas * backup_share)
    late_s = _steps_s(replicas, 0, delays)
    ring_s, servers_s = replica.all_reduce_s(replicas), replica.exchange_s()
    steps_s = {
        "lock-step": alone_s + ring_s,
        "late": late_s + ring_s,
        "late, servers": late_s + servers_s,
        "late, servers, backups": _steps_s(replicas, backups, delays) + servers_s,
    }
    return {
        **{name: replicas * alone_s / step_s for name, step_s in steps_s.items()},
        "backups": backups,
    }


def _steps_s(needed: int, backups: int, delays: Delays) -> float:
    rng = np.random.default_rng(0)
    return simulate_step_s(needed, backups, lambda: delays.draw(rng), steps=_SIMULATED_STEPS)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = _parser()
    args = parser.parse(argv)
    try:
        delays = _DELAYS.make(args)
        if not 0 <= args.backup_share <= 1:
            raise ValueError(f"--backup-share must be 0 to 1, got {args.backup_share}")
        if min(args.replicas) < 1:
            raise ValueError(f"--replicas must be at least 1, got {min(args.replicas)}")
        replica = measure(args)
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    rows = [
        {
            "replicas": count,
            "all-reduce ms": replica.all_reduce_s(count) * 1e3,
            **speedups(replica, delays, count, backup_share=args.backup_share),
        }
        for count in args.replicas
    ]
    print(
        f"a replica: steps of {replica.step_s * 1e3:,.1f} ms, input for one in "
        f"{replica.input_s * 1e3:,.1f} ms, gradients of {replica.gradient_bytes / 1e6:,.1f} MB; "
        f"a connection: {replica.latency_s * 1e6:,.0f} µs and {replica.bytes_per_s * 8e-9:,.1f} "
        f"Gbit/s; late: {delays.probability:.1%} of the gradients, by {delays.factor:g} times"
    )
    print(ASSUMPTIONS)
    print(table(rows))
    print(f"reported by TensorFlow in 2016: {REPORTED[1]:g} on {REPORTED[0]} GPUs")
    print(", ".join(machine().values()))
    if args.json:
        args.json.write_text(to_json({"replica": asdict(replica), "results": rows}))
    if args.plot:
        draw(rows).savefig(args.plot, dpi=120)
    return 0


def _parser() -> Any:
    parser = benchmark_parser("scaling", "DATA_DIR", __doc__)
    parser.add_argument("data_dir", metavar="DATA_DIR", help="dataset directory")
    parser.add_argument(
        "--replicas",
        type=int,
        nargs="+",
        default=[1, 2, 4, 8, 16, 32, 64, 100, 128, 256, 512, 1000],
        metavar="N",
        help="numbers of replicas (default: 1 to 1000)",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=32,
        metavar="RECORDS",
        help="records of a step, for each replica (default: %(default)s)",
    )
    parser.add_argument(
        "--task",
        default="pipeline.tasks.layout_classifier:LayoutClassifier",
        metavar="MODULE:NAME",
        help="what is trained (default: %(default)s)",
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=50,
        metavar="STEPS",
        help="training steps that are timed (default: %(default)s)",
    )
    late = parser.add_argument_group("late workers")
    _DELAYS.add_to(late, "probability", "factor")
    late.add_argument(
        "--backup-share",
        type=float,
        default=0.05,
        metavar="SHARE",
        help="backup workers, as a share of the replicas (default: %(default)s)",
    )
    given = parser.add_argument_group("figures of other machines, which are not measured here")
    for flag, metavar, text in (
        ("--step-ms", "MS", "a training step of one replica"),
        ("--input-ms", "MS", "a batch of its input pipeline"),
        ("--gradient-mb", "MB", "a gradient"),
        ("--latency-us", "US", "a message"),
        ("--gbit-per-s", "GBIT", "the bandwidth of a connection"),
    ):
        given.add_argument(flag, type=float, metavar=metavar, help=f"{text} (default: measured)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the figures to this file"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the speed-ups to this PNG file"
    )
    return parser


def measure(args: argparse.Namespace) -> Replica:
    """Measures what the options do not give.

    Raises:
      ValueError: an option, or the task, is wrong.
      FileNotFoundError: there is no dataset.
    """
    units = {
        "step_s": (args.step_ms, 1e-3),
        "input_s": (args.input_ms, 1e-3),
        "gradient_bytes": (args.gradient_mb, 1e6),
        "latency_s": (args.latency_us, 1e-6),
        "bytes_per_s": (args.gbit_per_s, 1e9 / 8),
    }
    given = {name: value * unit for name, (value, unit) in units.items() if value is not None}
    found = dict(given)
    if not {"step_s", "input_s", "gradient_bytes"} <= given.keys():
        options = (args.data_dir, args.task, args.batch_size, args.steps)
        found = {**timing.in_new_process(measure_replica, *options), **given}
    if not {"latency_s", "bytes_per_s"} <= given.keys():
        found = {**measure_connection(found["gradient_bytes"]), **found}
    return Replica(**found)


def measure_replica(data_dir: str, task: str, batch_size: int, steps: int) -> dict[str, float]:
    """Measures a step on a batch that is there, a batch of the input, and counts the gradient."""
    # Not above, as the process of the command uses no TensorFlow.
    import tensorflow as tf

    from pipeline.distribution.strategies import make_strategy
    from pipeline.records.info import load_info
    from pipeline.tasks.base import load_task
    from pipeline.training.options import TrainOptions
    from pipeline.training.trainer import Trainer

    options = TrainOptions(global_batch_size=batch_size)
    strategy = make_strategy("default")
    trainer = Trainer(load_task(task, {}), strategy, load_info(data_dir), options)
    batches = trainer.batches()
    batch = next(batches)
    same = iter(tf.data.Dataset.from_tensors(batch).repeat())
    trainer.train(same, 5)
    started = time.perf_counter()
    trainer.train(same, steps)
    step_s = (time.perf_counter() - started) / steps
    for _ in range(5):
        next(batches)
    started = time.perf_counter()
    for _ in range(steps):
        next(batches)
    input_s = (time.perf_counter() - started) / steps
    numbers = sum(int(np.prod(variable.shape)) for variable in trainer.model.trainable_variables)
    return {
        "step_s": step_s,
        "input_s": input_s,
        "gradient_bytes": float(numbers * _FLOAT_BYTES),
    }


def measure_connection(gradient_bytes: float) -> dict[str, float]:
    """Measures the latency and the bandwidth between two workers of this machine."""
    numbers = max(1_000_000, int(gradient_bytes) // _FLOAT_BYTES)
    command = ["-m", "benchmarks.harness.all_reduce", str(_SMALL), str(numbers)]
    small_s, large_s = json.loads(run_cluster(command, {"worker": 2}, name="an all-reduce"))
    # Between two workers, it is two messages and once the gradient.
    rest_s = max(large_s - small_s, 1e-9)
    return {"latency_s": small_s / 2, "bytes_per_s": numbers * _FLOAT_BYTES / rest_s}


def draw(rows: Sequence[dict[str, Any]]) -> "Figure":
    """Draws the speed-ups, beside the line of perfect scaling and what was reported."""
    # Not above: a process that only measures needs no Matplotlib.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    counts = [row["replicas"] for row in rows]
    axes.plot(counts, counts, color="#bbbbbb", linewidth=1, label="perfect")
    for name, style in _LINES.items():
        axes.plot(counts, [row[name] for row in rows], style, marker=".", label=name)
    label = f"TensorFlow, 2016: {REPORTED[1]:g} on {REPORTED[0]} GPUs"
    axes.plot(*REPORTED, "k*", markersize=12, label=label)
    axes.set(xscale="log", yscale="log", xlabel="replicas", ylabel="times as fast as one")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,g}")
    axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    sys.exit(main())
