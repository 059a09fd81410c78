"""Images of several sizes beside images of one size: pixels of receipts per second, and learning.

Padding costs as much as a receipt and shows nothing. So what counts is the pixels that show
receipts: those of the input pipeline by itself, in processes that take turns, and those of training
a text detector, where all take some steps in turn, in one process. Time to the same model is that
to 80, 90 and 100 % of the intersection over union of text with which the run of one size ends, over
the time that one size takes to it. Pixels without text that are taken for none do not count in the
intersection over union, so padding is no advantage. Seconds are those of training steps alone,
without tracing and evaluations. Each round of training has another seed.

The dataset needs boxes, and a split to evaluate on.
"""

import argparse
import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import numpy as np
import tensorflow as tf

from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.contenders import Training, up_to
from benchmarks.harness.input_options import add_measuring_options
from benchmarks.harness.timing import Effort, Round, by_turns, table, to_json
from pipeline.config import InputConfig
from pipeline.records.bucket_sizes import find_bucket
from pipeline.records.bucket_table import sizes_of
from pipeline.records.info import DatasetInfo, load_info
from pipeline.records.table import read_index
from pipeline.tasks.text_detector import TextDetector
from pipeline.training.loop import RunOptions, check_evaluation_split
from pipeline.training.options import TrainOptions
from pipeline.training.trainer import Trainer
from schemas.command_line import CommandParser

ONE_SIZE = "one size"
# Of the last score of one size, where learning is slow and the scores of turns differ by chance.
_SHARES = (0.8, 0.9, 1.0)


@dataclass(kw_only=True)
class Run:
    """Speed, time and scores of a training run; a number for each turn.

    Attributes:
      images_per_s: of its training steps.
      seconds: of training steps, up to the end of the turn.
      scores: intersection over union on the evaluation split.
    """

    images_per_s: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    def seconds_to(self, score: float) -> float | None:
        """Seconds of training until a score was reached; None if it was not."""
        pairs = zip(self.seconds, self.scores, strict=True)
        return next((seconds for seconds, found in pairs if found >= score), None)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = _parser()
    args = parser.parse(argv)
    try:
        info = load_info(args.data_dir)
        check_evaluation_split(info, RunOptions(evaluation_split=args.split))
        height, width = args.size
        task = TextDetector(height=height, width=width, filters=args.filters)
        one_size = task.inputs(info)
        configs = {ONE_SIZE: one_size} | {
            f"{number} sizes": dataclasses.replace(one_size, buckets=number)
            for number in args.buckets
        }
        shown = {name: shown_pixels(info, config) for name, config in configs.items()}
        effort = Effort(batch_size=args.batch_size, batches=args.batches, warmup=args.warmup)
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    contenders = {
        name: up_to(
            "batch",
            Training(data_dir=args.data_dir, config=config, batch_size=effort.batch_size),
        )
        for name, config in configs.items()
    }
    inputs = by_turns(contenders, dict.fromkeys(contenders, effort), rounds=args.rounds)
    trainings = [train(args, task, info, configs, seed=seed) for seed in range(args.rounds)]
    rows = figures(shown, inputs, trainings)
    print(table(rows))
    if args.json:
        args.json.write_text(to_json({"rows": rows, "options": {**vars(args), "json": None}}))
    return 0


def _parser() -> CommandParser:
    parser = benchmark_parser("buckets", "DATA_DIR", __doc__)
    parser.add_argument("data_dir", metavar="DATA_DIR", help="dataset directory")
    parser.add_argument(
        "--buckets",
        type=int,
        nargs="+",
        default=[4],
        metavar="N",
        help="numbers of sizes that are compared with one size (default: 4)",
    )
    parser.add_argument(
        "--size",
        type=int,
        nargs=2,
        default=(256, 256),
        metavar=("HEIGHT", "WIDTH"),
        help="the one size in pixels, of whose area the others are (default: 256 256)",
    )
    parser.add_argument(
        "--split",
        default="validation",
        metavar="SPLIT",
        help="split to evaluate on (default: %(default)s)",
    )
    for name, destination, default, meaning in (
        ("global-batch-size", "batch_size", 16, "images of a global batch"),
        ("batches", "batches", 100, "batches of input that are timed"),
        ("warmup", "warmup", 20, "batches before those that are timed"),
        ("steps", "steps", 400, "training steps of each run"),
        ("evaluate-every", "evaluate_every", 20, "steps of a turn; then the model is evaluated"),
        ("filters", "filters", 16, "filters of the model's first convolution"),
    ):
        parser.add_argument(
            f"--{name}",
            dest=destination,
            type=int,
            default=default,
            metavar="N",
            help=f"{meaning} (default: %(default)s)",
        )
    add_measuring_options(parser, rounds=3)
    return parser


def shown_pixels(info: DatasetInfo, config: InputConfig) -> float:
    """Computes the pixels of an image that show a receipt, on average over split "train"."""
    sizes = sizes_of(info, config) if config.buckets else ((config.height, config.width),)
    _, columns = read_index(info, "train", {"height": np.int64, "width": np.int64})
    height, width = columns["height"], columns["width"]
    frame = np.array(sizes)[find_bucket(sizes, height, width)]
    scale = np.minimum(frame[:, 0] / height, frame[:, 1] / width)
    return float(np.mean(height * width * scale**2))


def train(
    args: argparse.Namespace,
    task: TextDetector,
    info: DatasetInfo,
    configs: Mapping[str, InputConfig],
    *,
    seed: int,
) -> dict[str, Run]:
    """Trains a model with each of the options; all take some steps in turn."""
    options = TrainOptions(
        steps=args.steps,
        global_batch_size=args.batch_size,
        schedule="constant",
        steps_per_call=args.evaluate_every,
        seed=seed,
    )
    strategy = tf.distribute.get_strategy()

    def trainer_of(config: InputConfig) -> Trainer:
        return Trainer(task, strategy, info, options, lambda _: config)

    trainers = {name: trainer_of(config) for name, config in configs.items()}
    batches = {name: trainer.batches() for name, trainer in trainers.items()}
    runs = {name: Run() for name in configs}
    for first in range(0, args.steps, args.evaluate_every):
        steps = min(args.evaluate_every, args.steps - first)
        for name, trainer in trainers.items():
            started = time.perf_counter()
            progress = trainer.train(batches[name], steps)
            elapsed_s = time.perf_counter() - started - progress.tracing_s
            run = runs[name]
            run.images_per_s.append(steps * args.batch_size / elapsed_s)
            run.seconds.append(elapsed_s + (run.seconds[-1] if run.seconds else 0))
            run.scores.append(trainer.evaluate(args.split).averages["iou"])
        print(
            f"seed {seed}, step {first + steps}: "
            + ", ".join(f"{name} {run.scores[-1]:.3f}" for name, run in runs.items()),
            file=sys.stderr,
        )
    return runs


def figures(
    shown: Mapping[str, float],
    inputs: Mapping[str, Sequence[Round]],
    trainings: Sequence[Mapping[str, Run]],
) -> list[dict[str, object]]:
    """Makes the rows of the table: medians over rounds, and ratios to one size.

    Args:
      shown: pixels that show a receipt in an image, by contender.
      inputs: rounds of the input pipeline, by contender.
      trainings: for each round, the runs by contender.
    """
    rows = []
    for name, pixels in shown.items():
        pairs = zip(inputs[name], inputs[ONE_SIZE], strict=True)
        factor = pixels / shown[ONE_SIZE]
        speed = statistics.median(one.images_per_s for one in inputs[name]) * pixels
        # Of turns that followed each other, so that a change of the machine's load slows both.
        training_ratio = statistics.median(
            own / other
            for runs in trainings
            for own, other in zip(runs[name].images_per_s, runs[ONE_SIZE].images_per_s, strict=True)
        )
        steps = statistics.median(speed for runs in trainings for speed in runs[name].images_per_s)
        rows.append(
            {
                "images": name,
                "kpx/image": pixels / 1e3,
                "input Mpx/s": speed / 1e6,
                "ratio": factor
                * statistics.median(own.images_per_s / one.images_per_s for own, one in pairs),
                "training Mpx/s": steps * pixels / 1e6,
                "ratio ": factor * training_ratio,
                "IoU": statistics.median(runs[name].scores[-1] for runs in trainings),
            }
            | {f"time to {share:.0%}": _time_to(share, name, trainings) for share in _SHARES}
        )
    return rows


def _time_to(share: float, name: str, trainings: Sequence[Mapping[str, Run]]) -> str:
    """Tells what part of the time of one size a contender took to a share of its last score."""
    parts = []
    for runs in trainings:
        target = share * runs[ONE_SIZE].scores[-1]
        own, one = (runs[each].seconds_to(target) for each in (name, ONE_SIZE))
        if own is not None and one is not None:
            parts.append(own / one)
    if not parts:
        return "not reached"
    missed = len(trainings) - len(parts)
    return f"{statistics.median(parts):.2f}" + (f", {missed} not reached" if missed else "")


if __name__ == "__main__":
    sys.exit(main())
