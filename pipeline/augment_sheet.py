"""Draws the effect of augmentation ops on some receipts: one row per op, the originals first."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import tensorflow as tf
from matplotlib.figure import Figure

from pipeline.augmentation.chain import Op, augment
from pipeline.augmentation.corruption import Blur, Erase, JpegArtifacts, Noise
from pipeline.augmentation.geometric import Perspective, RandomZoom, Rotate, Scale, Shear
from pipeline.augmentation.photometric import Brightness, Contrast, Gamma, Shadow, UnevenLight
from pipeline.augmentation.stateless_random import fold_in
from pipeline.config import InputConfig
from pipeline.dataset import make_dataset
from pipeline.plots.samples import show_receipt

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
    parser = argparse.ArgumentParser(prog="python -m pipeline.augment_sheet", description=__doc__)
    parser.add_argument("data_dir", help="dataset directory")
    parser.add_argument("--out", type=Path, required=True, help="the picture, a PNG file")
    parser.add_argument("--seed", type=int, default=0, help="what the ops draw (default: 0)")
    parser.add_argument("--columns", type=int, default=4, help="receipts (default: 4)")
    parser.add_argument("--height", type=int, default=512, help="pixels (default: 512)")
    parser.add_argument("--width", type=int, default=384, help="pixels (default: 384)")
    known = parser.parse_args(argv)
    examples = _examples(known.data_dir, known.columns, known.height, known.width)
    draw_sheet(examples, known.seed, known.out)
    print(f"drew {known.out}")
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


def _examples(data_dir: str, count: int, height: int, width: int) -> dict[str, Any]:
    """Reads receipts with boxes; images are float32 in 0…1."""
    config = InputConfig(height=height, width=width, features=("image", "boxes"))
    return next(iter(make_dataset(data_dir, global_batch_size=count, config=config)))


if __name__ == "__main__":
    sys.exit(main())
