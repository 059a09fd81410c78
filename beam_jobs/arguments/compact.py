"""Arguments of `beam_jobs.compact`."""

import argparse
from functools import partial
from typing import Any

from beam_jobs.arguments.common import (
    IMAGES,
    SHARDING,
    add_running,
    parse_layout_from,
    parse_shards,
    read_layout_from,
)
from beam_jobs.errors import BuildError
from beam_jobs.layouts.descriptors import FOUND
from beam_jobs.options import CompactOptions
from beam_jobs.storage.paths import absolute
from beam_jobs.writing.output import read_base
from schemas.command_line import CommandParser, Flag, Options

_COMPACT = Options(
    CompactOptions,
    shards=Flag(metavar="N", parse=str, help="shards of each split: one number, or NAME=N,…"),
    shard_size_mb=Flag(metavar="MB", help="size of a shard where --shards is not given"),
    layout_from=Flag(
        metavar="text|image|model=DIR",
        parse=partial(parse_layout_from, kinds=FOUND),
        help="find the layouts of all records anew, as a build does: by the text of the boxes or "
        "the images, as the records hold them, or by the embeddings of an exported model. Layouts "
        "that people gave are not replaced. What is appended later gets its layouts in this way",
    ),
    layout_distance=Flag(
        help="with model=DIR: mean cosine distance between embeddings up to which receipts are of "
        "one layout, more than 0 and less than 1",
    ),
)


def compact_parser() -> CommandParser:
    """Makes the parser of `beam_jobs.compact`; all other arguments are Beam's."""
    result = CommandParser(
        "beam_jobs.compact",
        "DIRECTORY",
        "Deals the records of all generations of a dataset directory anew, as one generation of "
        "its next version. Records keep their splits and, unless their layouts are found anew or "
        "their images encoded again, their bytes; the versions before stay as they are.",
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
    IMAGES.add_to(
        result.add_argument_group("images"), "restart_rows", default="as the dataset was built"
    )
    group = result.add_argument_group("layouts")
    _COMPACT.add_to(group, "layout_from", default="layouts stay")
    _COMPACT.add_to(group, "layout_distance", default="0.5")
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
    image = dict(recorded["image"])
    if args.restart_rows:
        if image["encoding"] == "raw":
            raise ValueError(
                f"--restart-rows is for JPEG files, and {directory} holds pixels: leave it out"
            )
        image["restart_rows"] = True
    options = CompactOptions(
        output=directory,
        splits=splits,
        seed=recorded["seed"],
        base=base,
        image=image,
        layout_from=recorded.get("layout_from", "column"),
        layout_distance=recorded.get("layout_distance"),
        merge_spellings=recorded.get("merge_spellings", False),
        near_duplicates=recorded.get("near_duplicates", "off"),
        compare_images=recorded.get("compare_images", False),
        labels=manifest.labels,
        shard_size_mb=recorded["shard_size_mb"],
        shards_multiple_of=recorded["shards_multiple_of"],
    )
    return _COMPACT.replace(options, args, shards=shards, **_asked_layouts(args, options))


def _asked_layouts(args: argparse.Namespace, options: CompactOptions) -> dict[str, Any]:
    """Returns the options about layouts; `options` are those of the dataset as it is."""
    if args.layout_from is None:
        if args.layout_distance is not None:
            raise ValueError(
                "--layout-distance is for layouts that a model finds anew: give --layout-from "
                "model=DIR, too, or leave it out"
            )
        return {"layout_from": options.layout_from}
    if options.layout_from == "column":
        raise BuildError(
            f"people gave the layouts in {options.output}, and --layout-from {args.layout_from} "
            "would replace them: leave it out, or build another dataset of the inputs"
        )
    layout_from, model = read_layout_from(args.layout_from)
    return {
        "layout_from": layout_from,
        "layout_model": model,
        "layout_distance": args.layout_distance,
        "finds_layouts": True,
    }


def asks_for_more(args: argparse.Namespace) -> bool:
    """Returns whether arguments of `compact_parser` ask for other shards, or other layouts."""
    return any(getattr(args, name) is not None for name in (*SHARDING, "layout_from"))
