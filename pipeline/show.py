"""Draws the contents of a dataset directory: its layouts, its shards and some receipts."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from schemas.program import begin_program, run_program

if __name__ == "__main__":
    begin_program()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from pipeline.arguments import add_dataset
from pipeline.config import InputConfig
from pipeline.dataset import make_dataset
from pipeline.input.input_pipeline import InputPipeline
from pipeline.plots.rendering import shorten
from pipeline.plots.samples import show_receipt
from pipeline.records.info import DatasetInfo, load_info
from schemas.command_line import CommandParser

_EXAMPLES = 6  # receipts of a layout; and layouts, of the most common and of the rarest


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = CommandParser("pipeline.show", "[DATA_DIR] --output FOLDER", __doc__ or "")
    add_dataset(parser)
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FOLDER", help="folder of the pictures"
    )
    args = parser.parse(argv)
    try:
        info = load_info(args.data_dir, version=args.version)
        args.output.mkdir(parents=True, exist_ok=True)
        for path in (
            draw_layouts(info, args.output / "layouts.png"),
            draw_examples(info, args.output / "examples.png"),
            draw_shards(info, args.output / "shards.png"),
            draw_batch(info, args.output / "batch.png"),
        ):
            print(f"drew {path}")
    except (ValueError, OSError) as error:
        parser.error(str(error))
    return 0


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


def draw_examples(info: DatasetInfo, path: Path) -> Path:
    """Draws training receipts of the most common layouts and of the rarest, a row for each."""
    config = InputConfig(height=256, width=160, features=("image",))
    pipeline = InputPipeline.load(info, "train", 1, config)
    table = pipeline.table
    rows, numbers = choose_examples(table.counts)
    first = [table.first_records[row] for row in rows]
    chosen = np.concatenate([at + own for at, own in zip(first, numbers, strict=True)])
    images = iter(pipeline.read_records(chosen)["image"])
    height_in = 1.65 * len(rows) + 0.1
    figure = Figure(figsize=(9, height_in))
    grid = {"left": 0.2, "right": 0.99, "bottom": 0.05 / height_in, "top": 1 - 0.05 / height_in}
    grid |= {"wspace": 0.06, "hspace": 0.06}
    all_axes = figure.subplots(len(rows), _EXAMPLES, squeeze=False, gridspec_kw=grid)
    for row, own, row_axes in zip(rows, numbers, all_axes, strict=True):
        name, count = info.layouts[table.categories[row]], table.counts[row]
        text = f"{shorten(name)}\n{count:,} receipt{'s' if count > 1 else ''}"
        row_axes[0].annotate(
            text, (-0.1, 0.5), xycoords="axes fraction", ha="right", va="center", size=8
        )
        for axes in row_axes:
            axes.axis("off")
        for axes, image in zip(row_axes, itertools.islice(images, len(own)), strict=False):
            axes.axis("on")
            axes.spines[:].set_color("#c8c8c8")
            show_receipt(axes, image, np.zeros((0, 4)))
    return _save(figure, path)


def choose_examples(
    counts: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int64]]]:
    """Chooses some receipts of some layouts.

    Args:
      counts: receipts of each layout, int64 [layouts].

    Returns:
      The most common layouts and then the rarest, or all of a few, and of each of them the
      positions of some receipts, spread evenly over all it has.
    """
    order = np.argsort(-counts, kind="stable")
    if len(order) > 2 * _EXAMPLES:
        order = np.concatenate([order[:_EXAMPLES], order[-_EXAMPLES:]])
    shown = [min(int(counts[row]), _EXAMPLES) for row in order]
    return order, [
        np.linspace(0, counts[row] - 1, own).astype(np.int64)
        for row, own in zip(order, shown, strict=True)
    ]


def draw_shards(info: DatasetInfo, path: Path) -> Path:
    """Draws the records of each layout in each shard of the training split."""
    split = "train"
    index = info.record_index(split)
    shards = info.split(split).shards
    shard = np.repeat(np.arange(len(shards)), [one.records for one in shards])
    counts = np.zeros((len(shards), len(info.layouts)), np.int64)
    np.add.at(counts, (shard, index.categories["layout"]), 1)
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
    run_program(main)
