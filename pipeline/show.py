"""Draws the contents of a dataset directory: its layouts, its shards and some receipts."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from pipeline.plots.examples import COLUMNS, ExamplePart, ExampleRow, draw_parts
from pipeline.plots.rendering import shorten
from pipeline.plots.samples import show_receipt
from pipeline.records.info import DatasetInfo, load_info
from pipeline.records.table import RecordTable
from schemas.command_line import CommandParser

_LAYOUTS = 6  # of the most common, and of the rarest
_LEAST_CERTAIN = 6  # receipts

IntArray = npt.NDArray[np.int64]


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
    """Draws training receipts of the most common layouts and of the rarest, a row for each.

    Where the build found the layouts, rows of the receipts whose layout is the least certain
    follow: in each, the receipt comes first, and others of its layout are beside it.
    """
    config = InputConfig(height=256, width=160, features=("image",))
    pipeline = InputPipeline.load(info, "train", 1, config)
    parts = [ExamplePart(rows=_layout_rows(info, pipeline))]
    if rows := _least_certain_rows(info, pipeline):
        heading = "Least certain: receipts (left) that are least like others of their layout"
        parts.append(ExamplePart(heading=heading, rows=rows))
    return _save(draw_parts(parts), path)


def _layout_rows(info: DatasetInfo, pipeline: InputPipeline) -> list[ExampleRow]:
    table = pipeline.table
    rows, numbers = choose_examples(table.counts)
    chosen = [table.first_records[row] + own for row, own in zip(rows, numbers, strict=True)]
    images = _read_images(pipeline, chosen)
    return [
        ExampleRow(
            text=f"{shorten(info.layouts[table.categories[row]])}\n{_counted(table.counts[row])}",
            images=own,
        )
        for row, own in zip(rows, images, strict=True)
    ]


def _least_certain_rows(info: DatasetInfo, pipeline: InputPipeline) -> list[ExampleRow]:
    """Makes a row of each of the least certain receipts; none where layouts were given.

    `pipeline` is that of the split "train", in which others of their layouts are looked for.
    """
    listed = info.least_certain()
    if listed is None:
        return []
    ids = {one.id for one in listed.receipts}
    positions = {split: info.positions(split, ids) for split in info.manifest.splits}
    # Damaged receipts that are left out have no position.
    shown = [one for one in listed.receipts if one.id in positions[one.split]][:_LEAST_CERTAIN]
    images: dict[str, npt.NDArray[Any]] = {}
    for split in {one.split for one in shown}:
        own = [one.id for one in shown if one.split == split]
        places = np.array([positions[split][id_] for id_ in own])
        in_order = InputPipeline.load(info, split, 1, pipeline.config, evaluation=True)
        images |= zip(own, _read_images(in_order, [places])[0], strict=True)
    others = [
        choose_others(
            pipeline.table,
            info.layouts.index(one.layout),
            positions["train"][one.id] if one.split == "train" else None,
        )
        for one in shown
    ]
    return [
        ExampleRow(
            text=f"{shorten(one.id)}\n{shorten(one.layout)}\nsimilarity {one.similarity:.2f}",
            images=[images[one.id], *beside],
        )
        for one, beside in zip(shown, _read_images(pipeline, others), strict=True)
    ]


def choose_others(table: RecordTable, layout: int, position: int | None) -> IntArray:
    """Chooses some records of a layout, spread evenly over all it has.

    Args:
      table: a table with a stratum for each layout.
      layout: the id of the layout.
      position: position of a record that is not to be chosen, None for one of another split.

    Returns:
      Their numbers in the table, int64 [n]: at most 5, none if the table has no other.
    """
    [rows] = np.nonzero(table.categories == layout)
    if not len(rows):
        return np.zeros(0, np.int64)
    first = table.first_records[rows[0]]
    numbers = np.arange(first, first + table.counts[rows[0]])
    if position is not None and table.order is not None:
        numbers = numbers[table.order[numbers] != position]
    count = min(len(numbers), COLUMNS - 1)
    return numbers[np.linspace(0, len(numbers) - 1, count).astype(np.int64)]


def _read_images(
    pipeline: InputPipeline, numbers: Sequence[IntArray]
) -> list[list[npt.NDArray[Any]]]:
    """Reads the images of records; `numbers` are those in the table, of several rows."""
    ends = np.cumsum([len(own) for own in numbers])
    if not len(ends) or not ends[-1]:
        return [[] for _ in numbers]
    images = pipeline.read_records(np.concatenate(numbers))["image"]
    return [list(own) for own in np.split(images, ends[:-1])]


def _counted(receipts: int) -> str:
    return f"{receipts:,} receipt{'s' if receipts > 1 else ''}"


def choose_examples(
    counts: IntArray,
) -> tuple[IntArray, list[IntArray]]:
    """Chooses some receipts of some layouts.

    Args:
      counts: receipts of each layout, int64 [layouts].

    Returns:
      The most common layouts and then the rarest, or all of a few, and of each of them the
      positions of some receipts, spread evenly over all it has.
    """
    order = np.argsort(-counts, kind="stable")
    if len(order) > 2 * _LAYOUTS:
        order = np.concatenate([order[:_LAYOUTS], order[-_LAYOUTS:]])
    shown = [min(int(counts[row]), COLUMNS) for row in order]
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


def _layout_counts(info: DatasetInfo) -> IntArray:
    splits = info.manifest.splits.values()
    return np.array([split.category_counts["layout"] for split in splits])


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=120)
    return path


if __name__ == "__main__":
    run_program(main)
