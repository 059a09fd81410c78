"""Command-line options that several commands of `pipeline` have."""

import argparse

from pipeline.config import Balance
from pipeline.records.info import DATA_DIR_VARIABLE
from schemas.command_line import Flag, Options

BALANCE = Options(
    Balance,
    prefix="balance-",
    alpha=Flag(metavar="ALPHA"),
    repeat_cap=Flag(metavar="TIMES"),
    by=Flag(metavar="CATEGORY"),
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
