"""Arguments of `beam_jobs.build`."""

import argparse
import dataclasses
from functools import partial
from typing import get_args

from beam_jobs.arguments.common import (
    IMAGES,
    SHARDING,
    add_columns,
    add_running,
    add_table,
    parse_layout_from,
    parse_shards,
    read_layout_from,
    read_source,
)
from beam_jobs.errors import BuildError
from beam_jobs.layouts.descriptors import ONE_LAYOUT, LayoutFrom, Method, find_method
from beam_jobs.near_duplicates.fingerprinter import has_other_fingerprints
from beam_jobs.options import BuildOptions
from beam_jobs.sharding.splits import parse_fractions
from beam_jobs.shown import shown
from beam_jobs.sources.names import in_nfc
from beam_jobs.sources.source import INPUT_FORMATS, Source
from beam_jobs.storage.paths import absolute
from beam_jobs.writing.output import read_base, read_centroids
from schemas.command_line import CommandParser, Flag, Options
from schemas.manifest import IMAGE_FORM, Manifest, image_form
from schemas.receipt import LABEL_TYPES, Label

_EXAMPLES = """\
examples:
  %(prog)s --input receipts.jsonl --output data/receipts
  %(prog)s --input sroie/ --output data/sroie --shards 8
  %(prog)s --input gs://b/t.parquet --output gs://b/out \\
      --label total:float --runner DataflowRunner --project p --region r \\
      --temp_location gs://b/tmp --setup_file ./setup.py
"""

_BUILD = Options(
    BuildOptions,
    splits=Flag(
        metavar="NAME=FRACTION,…",
        parse=parse_fractions,
        default="train=0.9,validation=0.1",
        help="share of each split within every layout",
    ),
    shards=Flag(
        metavar="N",
        parse=str,  # until the names of the splits are known
        default="by --shard-size-mb",
        help="shards of each split: one number, or NAME=N,…",
    ),
    shard_size_mb=Flag(metavar="MB", help="size of a shard where --shards is not given"),
    max_bad_fraction=Flag(metavar="FRACTION"),
    layout_from=Flag(
        metavar="column|text|image|model=DIR|none",
        parse=partial(parse_layout_from, kinds=get_args(LayoutFrom)),
        help="where layouts come from: the table's column (or the subfolders), the text of the "
        "boxes or the image, of which receipts that begin alike become one layout, the embeddings "
        "of an exported model, or none: all receipts are one layout. But for column, the column "
        "may be missing, and is not read",
    ),
    layout_distance=Flag(
        default="0.5",
        help="with model=DIR: mean cosine distance between embeddings up to which receipts are of "
        "one layout",
    ),
    merge_spellings=Flag(
        help="make one layout of those whose names have the same letters and digits, or differ in "
        "one letter; versions/…/spellings.json lists them",
    ),
    near_duplicates=Flag(
        help="what becomes of receipts that are one purchase, as the numbers in the text of their "
        "boxes agree but for errors of OCR: group keeps them in one split, drop also leaves out "
        "all but one of those whose numbers are equal and many, off does not look; "
        "versions/…/duplicates lists them",
    ),
    compare_images=Flag(
        help="also keep receipts in one split whose images are nearly the same, encoded again or "
        "scaled; takes some milliseconds for each",
    ),
    overwrite=Flag(help="replace a finished dataset, once the new one is complete"),
    seed=Flag(metavar="SEED"),
)


def build_parser() -> CommandParser:
    """Makes the parser of the build's own arguments; all others are Beam's."""
    result = CommandParser(
        "beam_jobs.build",
        "--input PATH --output DIR",
        "Turns receipt images and their labels into TFRecord shards in which every layout is "
        "evenly spread.",
        epilog="A build that was interrupted resumes when the same command is run again. Every "
        "other option is passed to Beam, see "
        "https://beam.apache.org/documentation/runners/capability-matrix/",
        examples=_EXAMPLES,
    )
    group = result.add_argument_group("input")
    add_table(group, INPUT_FORMATS)
    group.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="NAME:TYPE",
        help=f"a label every receipt has; TYPE is {', '.join(LABEL_TYPES)}; may be repeated "
        "(default: none)",
    )
    add_columns(group)
    _BUILD.add_to(
        group,
        "layout_from",
        "layout_distance",
        "merge_spellings",
        "near_duplicates",
        "compare_images",
    )
    IMAGES.add_to(group, "box_frame")
    group = result.add_argument_group("output")
    group.add_argument("--output", required=True, metavar="DIR", help="dataset directory")
    group.add_argument(
        "--append",
        action="store_true",
        help="add the inputs to the dataset in DIR, as its next version. What it has already is "
        "left out; labels, splits, seed and the form of images are those of the dataset",
    )
    _BUILD.add_to(group, "overwrite")
    group.add_argument("--dry-run", action="store_true", help="show the plan, read no image")
    group = result.add_argument_group("images")
    IMAGES.add_to(group, *IMAGE_FORM)
    group = result.add_argument_group("splits and shards")
    _BUILD.add_to(group, "splits", *SHARDING, "seed")
    group = result.add_argument_group("limits")
    _BUILD.add_to(group, "max_bad_fraction")
    IMAGES.add_to(
        group, "max_pixels", "min_side", "max_input_bytes", "max_memory_bytes", "max_seconds"
    )
    add_running(result.add_argument_group("running"))
    return result


def build_options(args: argparse.Namespace, given: frozenset[str] = frozenset()) -> BuildOptions:
    """Makes the options of a build from parsed arguments.

    Args:
      args: the arguments.
      given: flags that the command line gives, such as "--quality".

    Raises:
      ValueError: an argument has a value that is not allowed.
      BuildError: there is no dataset to append to, or it can't be read.
    """
    if args.append:
        return _append_options(args, given)
    layout_from, model = read_layout_from(args.layout_from)
    source = _read_source(args, layout_from)
    channels = 3 if args.encoding == "raw" and args.channels is None else args.channels
    return _BUILD.make(
        args,
        source=source,
        output=absolute(args.output),
        layout_from=layout_from,
        layout_model=model,
        image=IMAGES.make(args, channels=channels),
        shards=parse_shards(args.shards, args.splits),
    )


def _append_options(args: argparse.Namespace, given: frozenset[str]) -> BuildOptions:
    """Makes the options of a build that appends: what shapes records is as the dataset has it."""
    if args.overwrite:
        raise ValueError("--append adds to a dataset, --overwrite replaces it: give one of them")
    output = absolute(args.output)
    base, manifest = read_base(output)
    recorded = manifest.build_options
    image = image_form(recorded["image"])
    asked = IMAGES.make(args, channels=args.channels or (3 if args.encoding == "raw" else None))
    # A dataset of an older version does not say where its layouts came from.
    layout_from = recorded.get("layout_from", "column")
    merge_spellings = recorded.get("merge_spellings", False)
    near_duplicates = recorded.get("near_duplicates", "off")
    compare_images = recorded.get("compare_images", False)
    layout_distance = recorded.get("layout_distance")
    asked_from, model = read_layout_from(args.layout_from)
    if layout_from == "model" and model is None:
        raise ValueError(
            f"a model found the layouts in {output}, which holds no copy of it: give --layout-from "
            "model=DIR, with that model"
        )
    _check_descriptors(output, manifest, find_method(layout_from, model))
    _check_names(output, manifest)
    if has_other_fingerprints(recorded):
        raise BuildError(
            f"another version of tillroll took the fingerprints by which near-duplicates are found "
            f"in {output}: run python -m beam_jobs.compact {output} once, then append"
        )
    source = _read_source(args, layout_from)
    pairs = [
        ("--label", set(source.labels), set(manifest.labels)),
        ("--splits", args.splits, recorded["splits"]),
        ("--seed", args.seed, recorded["seed"]),
        ("--layout-from", asked_from, layout_from),
        ("--layout-distance", args.layout_distance, layout_distance),
        ("--merge-spellings", args.merge_spellings, merge_spellings),
        ("--near-duplicates", args.near_duplicates, near_duplicates),
        ("--compare-images", args.compare_images, compare_images),
        *((IMAGES.flag(name), getattr(asked, name), image[name]) for name in IMAGE_FORM),
    ]
    for flag, now, then in pairs:
        if flag in given and now != then:
            is_switch = isinstance(now, bool)
            raise ValueError(
                f"{flag}{'' if is_switch else f' {_shown(now)}'}: the dataset in {output} was "
                f"built {'without it' if is_switch else f'with {_shown(then)}'}, and so must be "
                "what is appended to it: leave that option out"
            )
    return _BUILD.make(
        args,
        source=dataclasses.replace(source, labels=manifest.labels),
        output=output,
        image=dataclasses.replace(asked, **image),
        splits=recorded["splits"],
        seed=recorded["seed"],
        layout_from=layout_from,
        layout_model=model,
        layout_distance=layout_distance,
        merge_spellings=merge_spellings,
        near_duplicates=near_duplicates,
        compare_images=compare_images,
        shards=parse_shards(args.shards, recorded["splits"]),
        base=base,
    )


def _shown(value: object) -> str:
    """Returns the value of an option as people write it: total:int, train=0.9,test=0.1, 32x24."""
    if isinstance(value, set):
        return ",".join(sorted(f"{label.name}:{label.type}" for label in value)) or "no labels"
    if isinstance(value, dict):
        return ",".join(f"{name}={share}" for name, share in value.items())
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return "the default" if value is None else str(value)


def _check_descriptors(output: str, manifest: Manifest, method: Method | None) -> None:
    """Raises BuildError if this build can't tell whether receipts are like a dataset's."""
    found = read_centroids(output, manifest)
    if found is None or (method and method.version == found.descriptor_version):
        return
    if method and method.model:
        raise BuildError(
            f"the layouts in {output} were found by another model than {method.model.path}: append "
            "with that one, or build the dataset again"
        )
    raise BuildError(
        f"the layouts in {output} were found by {found.layout_from} of version "
        f"{found.descriptor_version}, and this tillroll has "
        f"{f'version {method.version}' if method else 'no such way'}: append with the tillroll "
        "that found them, or build the dataset again"
    )


def _check_names(output: str, manifest: Manifest) -> None:
    """Raises BuildError if names of a dataset have another form of Unicode than new ones."""
    for category, values in manifest.vocabularies.items():
        if odd := [value for value in values if in_nfc(value) != value]:
            raise BuildError(
                f"{category} {shown(odd[0])} in {output} is not in Unicode's form NFC, as an older "
                "tillroll wrote it: build the dataset again"
            )


def _read_source(args: argparse.Namespace, layout_from: LayoutFrom) -> Source:
    labels = tuple(Label.parse(text) for text in args.label)
    layout = {"column": None, "none": ONE_LAYOUT}.get(layout_from, "")
    return read_source(args, labels, layout=layout, needs_boxes=layout_from == "text")
