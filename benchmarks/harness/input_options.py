"""Options that several benchmarks share: what is read, and what becomes of it."""

import argparse
from pathlib import Path
from typing import Any

from benchmarks.harness.contenders import Training
from pipeline import augmentation
from pipeline.config import InputConfig, Reading
from pipeline.records.info import load_info


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Adds the dataset directory and the fields of `InputConfig` that matter for speed."""
    parser.add_argument("data_dir", metavar="DATA_DIR", help="dataset directory")
    group = add_image_options(parser)
    group.add_argument(
        "--augment",
        nargs="*",
        default=(),
        metavar="OP",
        help="augmentations on the host, such as Rotate Brightness Contrast Noise (default: none)",
    )
    group.add_argument(
        "--block-length",
        type=int,
        default=1,
        metavar="N",
        help="number of records that are read together (default: 1)",
    )
    group.add_argument(
        "--parallel-reads",
        type=int,
        metavar="N",
        help="number of blocks that are read at the same time; from local files, of batches "
        "(default: chosen by the pipeline)",
    )
    group.add_argument(
        "--parallel-decodes",
        type=int,
        metavar="N",
        help="number of images that are decoded at the same time (default: chosen by the pipeline)",
    )


def add_image_options(parser: argparse.ArgumentParser) -> Any:
    """Adds shape and type of batches; returns the group, for more."""
    group = parser.add_argument_group("images")
    group.add_argument(
        "--global-batch-size",
        dest="batch_size",
        metavar="RECORDS",
        type=int,
        default=32,
        help="size of a global batch (default: %(default)s)",
    )
    group.add_argument(
        "--size",
        type=int,
        nargs=2,
        default=(256, 256),
        metavar=("HEIGHT", "WIDTH"),
        help="size of the images in pixels (default: 256 256)",
    )
    group.add_argument(
        "--channels", type=int, choices=(1, 3), default=3, help="color channels (default: 3)"
    )
    group.add_argument(
        "--fit",
        choices=("pad", "stretch"),
        default="pad",
        help="how images are brought to that size (default: pad)",
    )
    group.add_argument(
        "--dtype",
        choices=("float32", "uint8"),
        default="float32",
        help="type of the pixels (default: float32)",
    )
    return group


def training_run(args: argparse.Namespace, **more: Any) -> Training:
    """The run that the options of `add_input_options` describe; `more` are other fields of it.

    Raises:
      ValueError: they describe none.
      FileNotFoundError: the directory holds no finished dataset.
    """
    if args.rounds < 1:
        raise ValueError(f"--rounds must be at least 1, got {args.rounds}")
    config = InputConfig(
        height=args.size[0],
        width=args.size[1],
        channels=args.channels,
        fit=args.fit,
        dtype=args.dtype,
        augmentations=tuple(_operation(name) for name in args.augment),
        reading=Reading(block_length=args.block_length, parallel_reads=args.parallel_reads),
        parallel_decodes=args.parallel_decodes,
    )
    run = Training(data_dir=args.data_dir, config=config, batch_size=args.batch_size, **more)
    load_info(args.data_dir)
    return run


def add_measuring_options(
    parser: argparse.ArgumentParser, *, rounds: int, batches: int | None = None
) -> None:
    """Adds how long to measure and where the figures go; batches and a plot only where asked."""
    group = parser.add_argument_group("measuring")
    group.add_argument(
        "--rounds",
        type=int,
        default=rounds,
        metavar="N",
        help="number of rounds, in which all take turns (default: %(default)s)",
    )
    group.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the figures to this file"
    )
    if batches is None:
        return
    group.add_argument(
        "--batches",
        type=int,
        default=batches,
        metavar="N",
        help="number of batches that are timed (default: %(default)s)",
    )
    group.add_argument(
        "--warmup",
        type=int,
        default=20,
        metavar="N",
        help="number of batches before those that are timed (default: %(default)s)",
    )
    group.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the figures to this PNG file"
    )


def _operation(name: str) -> Any:
    operation = getattr(augmentation, name, None) if name[:1].isupper() else None
    if operation in (None, augmentation.Op):
        raise ValueError(
            f"--augment {name!r} is not an operation: choose one that `pipeline.augmentation` has, "
            "such as Rotate"
        )
    return operation()
