"""Trains a small layout CNN for some steps, and draws the contents of a dataset directory."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from matplotlib.figure import Figure

from pipeline.config import InputConfig
from pipeline.dataset import make_dataset, make_distributed_dataset
from pipeline.distribution.host_memory import keep_host_memory
from pipeline.distribution.strategies import make_logical_cpus
from pipeline.plots.samples import show_receipt
from pipeline.records.info import DatasetInfo, load_info

_SIZE = 128


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.demo", description=__doc__)
    parser.add_argument("data_dir", help="dataset directory")
    parser.add_argument("--out", type=Path, required=True, help="folder for the pictures")
    parser.add_argument("--steps", type=int, default=60, help="training steps (default: 60)")
    parser.add_argument("--replicas", type=int, default=2, help="logical devices (default: 2)")
    args = parser.parse_args(argv)
    info = load_info(args.data_dir)
    args.out.mkdir(parents=True, exist_ok=True)
    keep_host_memory()
    make_logical_cpus(args.replicas)
    devices = [f"CPU:{number}" for number in range(args.replicas)]
    for path in (
        draw_layouts(info, args.out / "layouts.png"),
        draw_deal(info, args.out / "shards.png"),
        draw_batch(info, args.out / "batch.png"),
    ):
        print(f"drew {path}")
    train(info, steps=args.steps, devices=devices)
    return 0


def train(info: DatasetInfo, *, steps: int, devices: Sequence[str]) -> list[float]:
    """Trains under MirroredStrategy; returns the mean loss of each sixth of the steps."""
    strategy = tf.distribute.MirroredStrategy(devices)
    config = InputConfig(height=_SIZE, width=_SIZE, channels=1)
    batch_size = 16 * len(devices)
    dataset = make_distributed_dataset(
        strategy, info.data_dir, global_batch_size=batch_size, config=config
    )
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((_SIZE, _SIZE, 1)),
                keras.layers.Conv2D(32, 5, strides=2, activation="relu"),
                keras.layers.MaxPooling2D(4),
                keras.layers.Flatten(),
                keras.layers.Dense(128, activation="relu"),
                keras.layers.Dense(len(info.layouts), activation="softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy")
    print(f"training on {len(devices)} replicas, {batch_size} receipts per step")
    rounds = 6
    history = model.fit(
        dataset,
        epochs=rounds,
        steps_per_epoch=max(1, steps // rounds),
        shuffle=False,  # the dataset is shuffled already; Keras warns otherwise
        verbose=0,
    )
    losses = [float(loss) for loss in history.history["loss"]]
    for number, loss in enumerate(losses, start=1):
        print(f"  step {number * max(1, steps // rounds):>4}  loss {loss:.3f}")
    return losses


def draw_layouts(info: DatasetInfo, path: Path) -> Path:
    """Draws the number of receipts of each layout, the most common first."""
    counts = _layout_counts(info).sum(axis=0)
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.bar(np.arange(len(counts)), np.sort(counts)[::-1], width=0.9, color="#30638e")
    axes.set_yscale("log")
    axes.set(
        xlabel="layout, most common first",
        ylabel="receipts",
        title=f"{counts.sum():,} receipts in {len(counts)} layouts; "
        f"{(counts == 1).sum()} layouts have a single receipt",
    )
    return _save(figure, path)


def draw_deal(info: DatasetInfo, path: Path) -> Path:
    """Draws the records of each layout in each shard of the training split."""
    split = "train"
    index = info.record_index(split)
    counts = np.zeros((len(info.split(split).shards), len(info.layouts)), np.int64)
    np.add.at(counts, (index.shard, index.categories["layout"]), 1)
    order = np.argsort(-counts.sum(axis=0), kind="stable")[:40]
    figure = Figure(figsize=(9, 1.6 + 0.28 * len(counts)), layout="constrained")
    axes = figure.subplots()
    shown = counts[:, order]
    axes.imshow(np.log1p(shown), aspect="auto", cmap="Blues")
    for (row, column), count in np.ndenumerate(shown):
        dark = np.log1p(count) > 0.6 * np.log1p(shown.max())
        axes.text(
            column,
            row,
            str(count),
            ha="center",
            va="center",
            size=6,
            color="white" if dark else "black",
        )
    axes.set(
        xlabel=f"the {len(order)} most common layouts",
        ylabel="shard",
        title="records of each layout in each shard: within one of the fair share",
        xticks=[],
    )
    return _save(figure, path)


def draw_batch(info: DatasetInfo, path: Path) -> Path:
    """Draws the first batch of receipts as decoded, with the boxes of their lines."""
    config = InputConfig(height=512, width=384, features=("image", "boxes", "label"))
    dataset = make_dataset(info.data_dir, global_batch_size=8, config=config)
    batch = next(iter(dataset))
    figure = Figure(figsize=(11, 7.6), layout="constrained")
    for axes, image, boxes, label in zip(
        figure.subplots(2, 4).flat,
        batch["image"].numpy(),
        batch["boxes"].numpy(),
        batch["label"].numpy(),
        strict=True,
    ):
        show_receipt(axes, image, boxes)
        axes.set_title(info.layouts[label][:32], size=8)
        axes.axis("off")
    return _save(figure, path)


def _layout_counts(info: DatasetInfo) -> npt.NDArray[np.int64]:
    splits = info.manifest.splits.values()
    return np.array([split.category_counts["layout"] for split in splits])


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=120)
    return path


if __name__ == "__main__":
    sys.exit(main())
