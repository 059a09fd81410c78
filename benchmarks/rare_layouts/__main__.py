"""Accuracy of rare layouts with several orders and balances of the batches.

`python -m benchmarks.rare_layouts FOLDER` draws receipts into a folder, whose layouts follow Zipf's
law, and a balanced test set, and builds datasets of both, unless the folder has them. It trains the
same classifier with different orders and balances of the batches, for the same number of steps, and
prints the accuracy of layouts with many, some and few training records.
"""

import dataclasses
import functools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import numpy as np
import numpy.typing as npt

from benchmarks.harness import timing
from benchmarks.harness.command import add_numbers, benchmark_parser
from benchmarks.rare_layouts.composition import composition_table, compositions
from benchmarks.rare_layouts.corpus import Corpus
from benchmarks.rare_layouts.figures import accuracy_table
from benchmarks.rare_layouts.model import StridedClassifier
from benchmarks.rare_layouts.runs import Run, Training, train_run
from benchmarks.rare_layouts.settings import NATURAL, SETTINGS, Setting
from benchmarks.rare_layouts.streaming import refusal
from pipeline.records.info import DatasetInfo
from schemas.command_line import CommandParser

_RUNS = "runs.jsonl"
_NUMBERS = (
    ("count", 20_000, "receipts to train on"),
    ("layouts", 200, "layouts, whose receipts follow Zipf's law"),
    ("test-per-layout", 20, "receipts of each layout to test with"),
    ("size", 96, "height and width of the images in pixels"),
    ("width", 16, "filters of the model's first convolution"),
    ("steps", 3000, "training steps of each run"),
    ("global-batch-size", 64, "records of a global batch"),
    ("evaluate-every", 250, "steps between two evaluations"),
    ("seeds", 3, "runs of each setting"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    args = _parser().parse(argv)
    corpus = Corpus(
        count=args.count,
        layouts=args.layouts,
        test_per_layout=args.test_per_layout,
        size=args.size,
    )
    training = Training(
        task=StridedClassifier(size=args.size, width=args.width, augment=True),
        steps=args.steps,
        global_batch_size=args.global_batch_size,
        learning_rate=args.learning_rate,
        evaluate_every=args.evaluate_every,
    )
    train, test = corpus.datasets(args.folder)
    settings = {name: SETTINGS[name] for name in (NATURAL, *args.settings)}
    of_batches = timing.in_new_process(
        functools.partial(compositions, seeds=args.seeds), settings, training, train
    )
    records = np.array(train.split("train").category_counts["layout"])
    print("\n".join(composition_table(of_batches)))
    print(f"MosaicML Streaming, stratified: {_streaming(records, args.global_batch_size)}\n")
    runs = trained(args.folder / _RUNS, settings, training, (train, test), seeds=args.seeds)
    print("\n".join(accuracy_table(runs, records, natural=NATURAL)))
    return 0


def _parser() -> CommandParser:
    parser = benchmark_parser(
        "rare_layouts",
        "FOLDER",
        __doc__,
        epilog=f"Runs are kept in FOLDER/{_RUNS}: the same command goes on with those that are "
        "missing.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where everything is kept")
    parser.add_argument(
        "--settings",
        nargs="+",
        choices=SETTINGS,
        default=list(SETTINGS),
        metavar="NAME",
        help=f"some of {', '.join(SETTINGS)} (default: all); {NATURAL} is always there",
    )
    add_numbers(parser, _NUMBERS)
    parser.add_argument(
        "--learning-rate",
        type=float,
        default=1e-3,
        metavar="RATE",
        help="highest learning rate (default: %(default)s)",
    )
    return parser


def _streaming(records: npt.NDArray[np.int64], batch_size: int) -> str:
    try:
        return refusal(records.tolist(), batch_size) or "makes batches of this size"
    except ImportError:
        return "not installed, so not asked: make .venv-peers/ready"


def trained(
    path: Path,
    settings: Mapping[str, Setting],
    training: Training,
    datasets: tuple[DatasetInfo, DatasetInfo],
    *,
    seeds: int,
) -> dict[str, list[Run]]:
    """Trains the runs of each setting that a file does not have yet, each in its own process.

    Args:
      path: file of finished runs, one a line, with what they were trained with.
      settings: settings by name.
      training: what all runs have in common.
      datasets: those to train on and to test with.
      seeds: runs of each setting.
    """
    found: dict[str, dict[str, Any]] = {}
    if path.exists():
        found = {line["of"]: line["run"] for line in map(json.loads, path.open(encoding="utf-8"))}
    runs: dict[str, list[Run]] = {name: [] for name in settings}
    for seed in range(seeds):  # all settings with one seed, then with the next
        for name, setting in settings.items():
            key = f"{name}, seed {seed}: {setting}, {training}, {datasets[0].digest}"
            if key not in found:
                run = timing.in_new_process(train_run, name, setting, training, datasets, seed)
                found[key] = dataclasses.asdict(run)
                with path.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps({"of": key, "run": found[key]}) + "\n")
                print(f"{name}, seed {seed}: trained", file=sys.stderr)
            runs[name].append(Run.read(found[key]))
    return runs


if __name__ == "__main__":
    sys.exit(main())
