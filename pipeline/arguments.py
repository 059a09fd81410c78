"""Command-line options that several commands of `pipeline` have."""

import argparse
import functools

from pipeline.config import Balance
from pipeline.records.info import DATA_DIR_VARIABLE
from schemas.command_line import Flag, Options, parse_value

BALANCE = Options(
    Balance,
    prefix="balance-",
    alpha=Flag(metavar="ALPHA"),
    repeat_cap=Flag(metavar="TIMES"),
    by=Flag(metavar="CATEGORY"),
)
BUCKETS = Flag(
    metavar="N",
    parse=functools.partial(parse_value, type_=int),
    default="one size",
    help="choose so many sizes of images from the heights and widths of the dataset's, so that "
    "long receipts need less padding; each batch is of one size",
)


def add_dataset(parser: argparse.ArgumentParser, *, version_default: str = "the newest") -> None:
    """Adds the arguments of `load_info` to a command, which may leave them out."""
    parser.add_argument(
        "data_dir",
        metavar="DATA_DIR",
        nargs="?",
        help=f"dataset directory (default: that of the environment variable {DATA_DIR_VARIABLE})",
    )
    parser.add_argument(
        "--version",
        type=int,
        metavar="N",
        help=f"version of the dataset (default: {version_default})",
    )
