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
    parser.add_argument("data_dir", help="dataset directory")
    group = add_image_options(parser)
    group.add_argument(
        "--augment",
        nargs="*",
        default=(),
        metavar="OP",
        help="augmentations on the host, such as Rotate Brightness Contrast Noise",
    )
    group.add_argument("--block-length", type=int, default=1, help="records read together")
    group.add_argument(
        "--parallel-reads", type=int, help="blocks read at a time; of local files, batches"
    )
    group.add_argument("--parallel-decodes", type=int, help="images decoded at a time")


def add_image_options(parser: argparse.ArgumentParser) -> Any:
    """Adds shape and type of batches; returns the group, for more."""
    group = parser.add_argument_group("images")
    group.add_argument(
        "--global-batch-size",
        dest="batch_size",
        type=int,
        default=32,
        help="records of a batch (default: %(default)s)",
    )
    group.add_argument(
        "--size",
        type=int,
        nargs=2,
        default=(256, 256),
        metavar=("HEIGHT", "WIDTH"),
        help="pixels (default: 256 256)",
    )
    group.add_argument("--channels", type=int, choices=(1, 3), default=3, help="(default: 3)")
    group.add_argument("--fit", choices=("pad", "stretch"), default="pad", help="(default: pad)")
    group.add_argument(
        "--dtype", choices=("float32", "uint8"), default="float32", help="(default: float32)"
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
    group.add_argument("--rounds", type=int, default=rounds, help="(default: %(default)s)")
    group.add_argument("--json", type=Path, help="also write the figures to this file")
    if batches is None:
        return
    group.add_argument(
        "--batches", type=int, default=batches, help="that are timed (default: %(default)s)"
    )
    group.add_argument(
        "--warmup", type=int, default=20, help="batches before them (default: %(default)s)"
    )
    group.add_argument("--plot", type=Path, help="draw them to this PNG file")


def _operation(name: str) -> Any:
    operation = getattr(augmentation, name, None) if name[:1].isupper() else None
    if operation in (None, augmentation.Op):
        raise ValueError(
            f"--augment {name!r} is not an operation: choose one that `pipeline.augmentation` has, "
            "such as Rotate"
        )
    return operation()
