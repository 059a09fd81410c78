"""Arguments of `beam_jobs.compact`."""

import argparse

from beam_jobs.arguments.common import SHARDING, absolute, add_running, parse_shards
from beam_jobs.options import CompactOptions
from beam_jobs.writing.output import read_base
from schemas.command_line import CommandParser, Flag, Options

_COMPACT = Options(
    CompactOptions,
    shards=Flag(metavar="N", parse=str, help="shards of each split: one number, or NAME=N,…"),
    shard_size_mb=Flag(metavar="MB", help="size of a shard where --shards is not given"),
)


def compact_parser() -> CommandParser:
    """Makes the parser of `beam_jobs.compact`; all other arguments are Beam's."""
    result = CommandParser(
        "beam_jobs.compact",
        "DIRECTORY",
        "Deals the records of all generations of a dataset directory anew, as one generation of "
        "its next version. Records keep their splits and their bytes, and no image is decoded; "
        "the versions before stay as they are.",
        epilog="Every other option is passed to Beam, such as those for S3.",
    )
    result.add_argument(
        "directory",
        metavar="DIRECTORY",
        help="dataset directory, on any file system that Beam knows",
    )
    _COMPACT.add_to(
        result.add_argument_group("shards"),
        *SHARDING,
        default="as the dataset was built",
    )
    add_running(result.add_argument_group("running"))
    return result


def compact_options(args: argparse.Namespace) -> CompactOptions:
    """Makes the options of a compaction from parsed arguments.

    Raises:
      ValueError: an argument has a value that is not allowed.
      BuildError: there is no dataset, or it can't be read.
    """
    directory = absolute(args.directory)
    base, manifest = read_base(directory)
    recorded = manifest.generations[0].build_options
    splits = {name: recorded["splits"][name] for name in manifest.splits}
    # A size that is given must not yield to a number that is not.
    shards = recorded["shards"] if args.shard_size_mb is None else None
    if args.shards is not None:
        shards = parse_shards(args.shards, splits)
    options = CompactOptions(
        output=directory,
        splits=splits,
        seed=recorded["seed"],
        base=base,
        image=recorded["image"],
        layout_from=recorded.get("layout_from", "column"),
        layout_distance=recorded.get("layout_distance"),
        merge_spellings=recorded.get("merge_spellings", False),
        near_duplicates=recorded.get("near_duplicates", "off"),
        compare_images=recorded.get("compare_images", False),
        labels=manifest.labels,
        shard_size_mb=recorded["shard_size_mb"],
        shards_multiple_of=recorded["shards_multiple_of"],
    )
    return _COMPACT.replace(options, args, shards=shards)


def asks_for_shards(args: argparse.Namespace) -> bool:
    """Returns whether arguments of `compact_parser` say how many shards there are to be."""
    return any(getattr(args, name) is not None for name in SHARDING)
