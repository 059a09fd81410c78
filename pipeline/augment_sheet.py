"""Draws the effect of augmentation ops on some receipts: one row per op, the originals first."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from schemas.program import begin_program, run_program

if __name__ == "__main__":
    begin_program()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import tensorflow as tf
from matplotlib.figure import Figure

from pipeline.arguments import add_dataset
from pipeline.augmentation.chain import Op, augment
from pipeline.augmentation.corruption import Blur, Erase, JpegArtifacts, Noise
from pipeline.augmentation.geometric import Perspective, RandomZoom, Rotate, Scale, Shear
from pipeline.augmentation.photometric import Brightness, Contrast, Gamma, Shadow, UnevenLight
from pipeline.augmentation.stateless_random import fold_in
from pipeline.config import InputConfig
from pipeline.dataset import make_dataset
from pipeline.plots.samples import show_receipt
from schemas.command_line import CommandParser, Flag, Options

_GEOMETRIC: tuple[Op, ...] = (Rotate(), Shear(), Scale(), Perspective(), RandomZoom())
_PHOTOMETRIC: tuple[Op, ...] = (
    Brightness(),
    Contrast(),
    Gamma(),
    UnevenLight(),
    Shadow(),
    Blur(),
    Noise(),
    JpegArtifacts(),
    Erase(),
)
ROWS: dict[str, tuple[Op, ...]] = {
    "original": (),
    **{type(op).__name__: (op,) for op in _GEOMETRIC},
    "all geometric": _GEOMETRIC,
    **{type(op).__name__: (op,) for op in _PHOTOMETRIC},
    "everything": _GEOMETRIC + _PHOTOMETRIC,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = CommandParser(
        "pipeline.augment_sheet",
        "[DATA_DIR] --output FILE",
        "Draws what each augmentation op does to some receipts, a row per op, the originals first.",
    )
    add_dataset(parser)
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="the picture, a PNG file"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seeds what the ops draw (default: %(default)s)"
    )
    sheet = Options(sheet_examples, height=Flag(metavar="PIXELS"), width=Flag(metavar="PIXELS"))
    sheet.add_to(parser, "receipts", "height", "width")
    args = parser.parse(argv)
    try:
        examples = sheet.make(args)
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    draw_sheet(examples, args.seed, args.output)
    print(f"drew {args.output}")
    return 0


def draw_sheet(examples: dict[str, Any], seed: int, path: Path) -> None:
    """Draws the sheet; the ops' random numbers follow from `seed`, the row and the column."""
    columns, height, width = examples["image"].shape[:3]
    seeds = fold_in(tf.range(columns, dtype=tf.int64), seed % 2**31)
    # A pixel of a receipt is a pixel of the picture.
    dpi, title, gap = 100, 24, 6
    figure = Figure(
        figsize=(columns * (width + gap) / dpi, len(ROWS) * (height + title) / dpi), dpi=dpi
    )
    for row, (name, ops) in enumerate(ROWS.items()):
        drawn = augment(examples, ops, fold_in(seeds, row))
        for column in range(columns):
            axes = figure.add_axes(
                (
                    column / columns,
                    1 - (row * (height + title) + title + height) / (len(ROWS) * (height + title)),
                    width / (columns * (width + gap)),
                    height / (len(ROWS) * (height + title)),
                )
            )
            show_receipt(axes, drawn["image"][column].numpy(), drawn["boxes"][column].numpy())
            axes.set_title(name if column == 0 else "", size=12, loc="left", pad=4)
    figure.savefig(path)


def sheet_examples(
    data_dir: str | None = None,
    *,
    version: int | None = None,
    receipts: int = 4,
    height: int = 512,
    width: int = 384,
) -> dict[str, Any]:
    """Reads receipts with boxes, the images as float32 [receipts, height, width, 3] in 0…1.

    Args:
      data_dir: dataset directory; None for the one that TILLROLL_DATA_DIR names.
      version: version of the dataset; None for the newest.
      receipts: receipts in a row, one per column.
      height: height of a receipt in pixels.
      width: width of a receipt in pixels.

    Raises:
      ValueError: an argument does not fit the dataset; the sentence says what does.
      FileNotFoundError: there is no finished dataset.
    """
    if receipts < 1:
        raise ValueError(f"receipts must be at least 1, got {receipts}")
    config = InputConfig(height=height, width=width, features=("image", "boxes"))
    return next(
        iter(make_dataset(data_dir, version=version, global_batch_size=receipts, config=config))
    )


if __name__ == "__main__":
    run_program(main)
