"""A warm start beside a cold one, after a dataset has got new layouts.

`python -m benchmarks.warm_start FOLDER` takes receipts with a table `receipts.jsonl`, such as
`benchmarks.receipts FOLDER --layouts 70` draws. It builds a dataset of those whose layout is old,
trains a model on it, appends the others, and trains two models on the whole: one begins with the
weights of the first, the other from scratch. It prints the accuracy on the old layouts before the
first step, and the steps to the accuracy that the cold run ends with.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import numpy as np
import tensorflow as tf

from benchmarks.harness.command import add_numbers, benchmark_parser
from benchmarks.harness.weights import weights_of
from pipeline.evaluation.evaluator import Evaluation
from pipeline.records.info import DatasetInfo, load_info
from pipeline.tasks.layout_classifier import LayoutClassifier
from pipeline.training.options import TrainOptions
from pipeline.training.trainer import Trainer
from pipeline.warm_start import TrainedWeights, warm_start
from schemas.command_line import CommandParser

_NEW_EVERY = 7  # of 70 layouts in the order of their names, 10 are new: common and rare ones
_SPLITS = "train=0.8,validation=0.2"


@dataclass(frozen=True, kw_only=True)
class Training:
    """Options of the training runs."""

    task: LayoutClassifier
    options: TrainOptions
    evaluate_every: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """A trained model, and the accuracy on the split "validation" before its steps and at each."""

    trainer: Trainer
    first: Evaluation
    accuracies: dict[int, float]
    report: tuple[str, ...] = ()

    def steps_to(self, accuracy: float) -> int | None:
        """The first step at which an accuracy was reached; None if it was not."""
        return next((step for step, found in self.accuracies.items() if found >= accuracy), None)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    args = _parser().parse(argv)
    table = Path(args.folder, "receipts.jsonl")
    if not table.is_file():
        raise SystemExit(f"{table} does not exist: draw receipts, or name another folder")
    training = Training(
        task=LayoutClassifier(size=args.size, width=args.width, units=args.units),
        options=TrainOptions(
            steps=args.steps,
            global_batch_size=args.global_batch_size,
            schedule="constant",
            steps_per_call=args.evaluate_every,
        ),
        evaluate_every=args.evaluate_every,
    )
    with tempfile.TemporaryDirectory(prefix="warm-start-") as folder:
        old_info, info = build(table, Path(folder))
        old = train(training, old_info)
        warm = train(training, info, source=weights_of(old.trainer))
        cold = train(training, info)
        print("\n".join([*warm.report, *figures(old, warm, cold)]))
    return 0


def _parser() -> CommandParser:
    parser = benchmark_parser("warm_start", "FOLDER", __doc__)
    parser.add_argument(
        "folder", metavar="FOLDER", help="receipts, with their table receipts.jsonl"
    )
    numbers = (
        ("steps", 600, "training steps of each run"),
        ("evaluate-every", 20, "steps between two evaluations"),
        ("global-batch-size", 32, "records of a global batch"),
        ("size", 64, "height and width of the images in pixels"),
        ("width", 16, "filters of the model's first convolution"),
        ("units", 64, "units of the model's dense layer"),
    )
    add_numbers(parser, numbers)
    return parser


def build(table: Path, folder: Path) -> tuple[DatasetInfo, DatasetInfo]:
    """Builds the dataset of the old layouts, and appends the others; returns both versions."""
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    layouts = sorted({row["layout"] for row in rows})
    new = {*layouts[_NEW_EVERY - 1 :: _NEW_EVERY]}
    output = str(folder / "dataset")
    for name, chosen, options in (
        ("old", [row for row in rows if row["layout"] not in new], [f"--splits={_SPLITS}"]),
        ("all", rows, ["--append"]),
    ):
        lines = [
            json.dumps({**row, "image": str(table.parent.absolute() / row["image"])})
            for row in chosen
        ]
        part = folder / f"{name}.jsonl"
        part.write_text("".join(line + "\n" for line in lines))
        command = [sys.executable, "-m", "beam_jobs.build", "--quiet", "--shards=4", *options]
        subprocess.run(
            [*command, f"--input={part}", f"--output={output}"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return load_info(output, version=1), load_info(output, version=2)


def train(training: Training, info: DatasetInfo, *, source: TrainedWeights | None = None) -> Run:
    """Trains a model, and evaluates it again and again."""
    trainer = Trainer(training.task, tf.distribute.get_strategy(), info, training.options)
    report: list[str] = []
    if source is not None:
        report = warm_start(trainer.model, training.task, info, source)
    first = trainer.evaluate("validation")
    accuracies = {0: first.averages["accuracy"]}
    batches = trainer.batches()
    while trainer.step < training.options.steps:
        steps = min(training.evaluate_every, training.options.steps - trainer.step)
        trainer.train(batches, steps)
        accuracies[trainer.step] = trainer.evaluate("validation").averages["accuracy"]
    return Run(trainer=trainer, first=first, accuracies=accuracies, report=tuple(report))


def figures(old: Run, warm: Run, cold: Run) -> list[str]:
    """Makes the lines that the command prints."""
    layouts = old.trainer.info.layouts
    before = accuracy_of(old.trainer.evaluate("validation"), len(layouts))
    now = accuracy_of(warm.first, len(layouts))
    last_step, target = list(cold.accuracies.items())[-1]
    cold_steps, warm_steps = cold.steps_to(target), warm.steps_to(target)
    reached = "not reached"
    if warm_steps is not None and cold_steps:
        reached = f"{warm_steps:,} steps warm, {cold_steps:,} cold: {warm_steps / cold_steps:.0%}"
    return [
        f"{len(layouts)} old layouts of {len(warm.trainer.info.layouts)}",
        f"accuracy on the old ones   {before:.3f} at the end of the old run, {now:.3f} before the "
        "first step of the warm one",
        f"accuracy on all            {warm.accuracies[0]:.3f} warm and {cold.accuracies[0]:.3f} "
        f"cold before the first step, {warm.accuracies[last_step]:.3f} and {target:.3f} after "
        f"{last_step:,}",
        f"to an accuracy of {target:.3f}    {reached}",
    ]


def accuracy_of(evaluation: Evaluation, layouts: int) -> float:
    """The accuracy over the records of the first layouts alone."""
    counted: Any = evaluation.counted["accuracy"][:layouts]
    right = np.nan_to_num(evaluation.by_layout["accuracy"][:layouts]) * counted
    return float(right.sum() / counted.sum())


if __name__ == "__main__":
    sys.exit(main())
