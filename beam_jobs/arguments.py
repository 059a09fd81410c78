"""Command-line arguments of the build, and the options they stand for."""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from apache_beam.io.filesystems import FileSystems

from beam_jobs.images.image import ImageOptions
from beam_jobs.options import BuildOptions, CompactOptions, ForgetOptions
from beam_jobs.sharding.splits import parse_fractions
from beam_jobs.sources.decompress import compression
from beam_jobs.sources.source import COLUMNS, INPUT_FORMATS, InputFormat, Source
from beam_jobs.sources.tables import has_pattern_folder
from beam_jobs.storage import files
from beam_jobs.writing.output import read_base
from schemas.command_line import CommandParser, Flag, Options, parse_value
from schemas.receipt import LABEL_TYPES, Label

_MIB = 1 << 20
_EXAMPLES = """\
examples:
  %(prog)s --input receipts.jsonl --output data/receipts
  %(prog)s --input sroie/ --output data/sroie --shards 8
  %(prog)s --input gs://b/t.parquet --output gs://b/out \\
      --label total:float --runner DataflowRunner --project p --region r \\
      --temp_location gs://b/tmp --setup_file ./setup.py
"""


def _raw_size(text: str) -> tuple[int, int]:
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal()):
        raise ValueError(f"takes HEIGHTxWIDTH in pixels, such as 256x256, got {text!r}")
    return int(height), int(width)


def _channels(text: str) -> Any:
    channels = parse_value(text, Literal["auto", 1, 3])
    return None if channels == "auto" else channels


IMAGES = Options(
    ImageOptions,
    encoding=Flag(help="store JPEG files, or decoded pixels of one size"),
    max_side=Flag(metavar="PIXELS"),
    quality=Flag(metavar="QUALITY"),
    raw_size=Flag(
        metavar="HEIGHTxWIDTH",
        parse=_raw_size,
        default="256x256",
        help="size of raw images in pixels",
    ),
    channels=Flag(
        metavar="{auto,1,3}",
        parse=_channels,
        default="auto",
        help="1 for grayscale, 3 for RGB; auto keeps what comes, raw images become RGB",
    ),
    max_pixels=Flag(metavar="PIXELS"),
    min_side=Flag(metavar="PIXELS"),
    max_input_bytes=Flag(name="max-input-mb", metavar="MB", unit=_MIB),
    max_memory_bytes=Flag(name="max-image-memory-mb", metavar="MB", unit=_MIB),
    max_seconds=Flag(
        name="max-image-seconds",
        metavar="SECONDS",
        help="reject images that take more processor time: large ones, and all of a chunk in which "
        "a worker died; a worker that an image holds for ten times as long is ended",
    ),
)
_COMPACT = Options(
    CompactOptions,
    shards=Flag(metavar="N", parse=str, help="shards of each split: one number, or NAME=N,…"),
    shard_size_mb=Flag(metavar="MB", help="size of a shard where --shards is not given"),
)
# What shapes the stored images; the others are limits, and the frame of the inputs' boxes.
_SHARDING = ("shards", "shard_size_mb", "shards_multiple_of")
_SHAPING_IMAGES = ("encoding", "max_side", "quality", "raw_size", "fit", "channels")
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
    overwrite=Flag(help="replace a finished dataset, once the new one is complete"),
    seed=Flag(metavar="SEED"),
)


def parser() -> CommandParser:
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
    IMAGES.add_to(group, "encoding", "max_side", "quality", "raw_size", "fit", "channels")
    group = result.add_argument_group("splits and shards")
    _BUILD.add_to(group, "splits", *_SHARDING, "seed")
    group = result.add_argument_group("limits")
    _BUILD.add_to(group, "max_bad_fraction")
    IMAGES.add_to(
        group, "max_pixels", "min_side", "max_input_bytes", "max_memory_bytes", "max_seconds"
    )
    add_running(result.add_argument_group("running"))
    return result


def add_running(group: Any) -> None:
    """Adds the options that say where a job runs."""
    group.add_argument(
        "--runner",
        default="local",
        metavar="NAME",
        help="local, DataflowRunner, PortableRunner, FlinkRunner, … (default: %(default)s)",
    )
    group.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes of the local runner (default: one per core)",
    )
    group.add_argument("--quiet", action="store_true", help="no progress bar")


def add_table(group: Any, formats: Sequence[str], *, more: str = "") -> None:
    """Adds the options that say where the inputs are; `more` is further help."""
    group.add_argument(
        "--input",
        required=True,
        metavar="PATH",
        help="table, folder of images, or glob pattern of tables; what exists under this very name "
        f"is not taken for a pattern, and a table may be a folder of part files{more}",
    )
    sroie = "; sroie is a folder of img/ box/ key/" if "sroie" in formats else ""
    group.add_argument(
        "--input-format",
        choices=["auto", *formats],
        default="auto",
        help="csv, jsonl and parquet are tables with one row per receipt; in a folder the first "
        f"subfolders are layouts{sroie}; auto goes by the name. One "
        "worker reads a CSV or a compressed table, at some 60,000 rows/s, or 12,000 with 40 boxes "
        "each: write large ones as several files, JSON lines or Parquet (default: %(default)s)",
    )


def add_columns(group: Any) -> None:
    """Adds the options that say what the columns of a table are."""
    group.add_argument(
        "--columns",
        default="",
        metavar="KEY=NAME,…",
        help=f"table columns that are not called {', '.join(COLUMNS)} (default: none)",
    )
    group.add_argument(
        "--image-root",
        metavar="DIR",
        help="folder that image names in a table start from; with it, absolute names must lie in "
        "that folder, too (default: the table's folder)",
    )


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
    source = read_source(args, _labels(args))
    channels = 3 if args.encoding == "raw" and args.channels is None else args.channels
    return _BUILD.make(
        args,
        source=source,
        output=absolute(args.output),
        image=IMAGES.make(args, channels=channels),
        shards=_shards(args.shards, args.splits),
    )


def _append_options(args: argparse.Namespace, given: frozenset[str]) -> BuildOptions:
    """Makes the options of a build that appends: what shapes records is as the dataset has it."""
    if args.overwrite:
        raise ValueError("--append adds to a dataset, --overwrite replaces it: give one of them")
    output = absolute(args.output)
    base, manifest = read_base(output)
    recorded = manifest.build_options
    image = ImageOptions(**recorded["image"] | {"raw_size": tuple(recorded["image"]["raw_size"])})
    asked = IMAGES.make(args, channels=args.channels or (3 if args.encoding == "raw" else None))
    source = read_source(args, _labels(args))
    pairs = [
        ("--label", set(source.labels), set(manifest.labels)),
        ("--splits", args.splits, recorded["splits"]),
        ("--seed", args.seed, recorded["seed"]),
        *(
            (IMAGES.flag(name), getattr(asked, name), getattr(image, name))
            for name in _SHAPING_IMAGES
        ),
    ]
    for flag, now, then in pairs:
        if flag in given and now != then:
            raise ValueError(
                f"{flag} {now}: the dataset in {output} was built with {then}, and so must be what "
                "is appended to it: leave that option out"
            )
    return _BUILD.make(
        args,
        source=dataclasses.replace(source, labels=manifest.labels),
        output=output,
        image=dataclasses.replace(
            asked, **{name: getattr(image, name) for name in _SHAPING_IMAGES}
        ),
        splits=recorded["splits"],
        seed=recorded["seed"],
        shards=_shards(args.shards, recorded["splits"]),
        base=base,
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
        *_SHARDING,
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
        shards = _shards(args.shards, splits)
    options = CompactOptions(
        output=directory,
        splits=splits,
        seed=recorded["seed"],
        base=base,
        image=recorded["image"],
        labels=manifest.labels,
        shard_size_mb=recorded["shard_size_mb"],
        shards_multiple_of=recorded["shards_multiple_of"],
    )
    return _COMPACT.replace(options, args, shards=shards)


def asks_for_shards(args: argparse.Namespace) -> bool:
    """Returns whether arguments of `compact_parser` say how many shards there are to be."""
    return any(getattr(args, name) is not None for name in _SHARDING)


def forget_parser() -> CommandParser:
    """Makes the parser of `beam_jobs.forget`; all other arguments are Beam's."""
    result = CommandParser(
        "beam_jobs.forget",
        "DIRECTORY --ids FILE",
        "Removes receipts from every file of a dataset directory, for good. Only the shards that "
        "hold them are written anew, as a new version. The versions that held them end, and their "
        "files are deleted: a training run on one of them can't go on. Ends with status 1 if an id "
        "is nowhere in the dataset; the others are forgotten all the same.",
        epilog="Every other option is passed to Beam, such as those for S3.",
    )
    result.add_argument(
        "directory",
        metavar="DIRECTORY",
        help="dataset directory, on any file system that Beam knows",
    )
    result.add_argument(
        "--ids", metavar="FILE", help="ids of the receipts, a line each, in UTF-8 (default: none)"
    )
    result.add_argument(
        "--excluded",
        action="store_true",
        help="forget the damaged records, too, that beam_jobs.verify --exclude has left out of "
        "the newest version",
    )
    add_running(result.add_argument_group("running"))
    return result


def forget_options(args: argparse.Namespace) -> ForgetOptions:
    """Makes the options of a forgetting from parsed arguments.

    Raises:
      ValueError: an argument has a value that is not allowed, or the ids can't be read.
      BuildError: there is no dataset, or it can't be read.
    """
    directory = absolute(args.directory)
    ids = () if args.ids is None else _read_ids(args.ids)
    base, _ = read_base(directory)
    return ForgetOptions(output=directory, base=base, ids=ids, excluded=args.excluded)


def _read_ids(path: str) -> tuple[str, ...]:
    """Reads a file with an id on each line."""
    try:
        text = files.read(absolute(path)).decode()
    except (OSError, ValueError) as error:
        raise ValueError(f"--ids {path} can't be read: {error}") from error
    # Not `splitlines`, which also splits at characters that an id may have.
    ids = {line.removesuffix("\r") for line in text.split("\n")} - {""}
    if not ids:
        raise ValueError(f"--ids {path} holds no id: write one on each line")
    return tuple(sorted(ids))


def read_source(
    args: argparse.Namespace, labels: tuple[Label, ...] = (), *, images_only: bool = False
) -> Source:
    """Makes the source that parsed arguments name.

    Raises:
      ValueError: an argument has a value that is not allowed.
    """
    source_format = _input_format(args.input, args.input_format)
    path = absolute(args.input).rstrip("/") or "/"
    columns = _pairs(args.columns, "--columns")
    if unknown := columns.keys() - set(COLUMNS):
        raise ValueError(f"--columns knows {', '.join(COLUMNS)}, not {', '.join(sorted(unknown))}")
    in_folder = source_format in ("folder", "sroie")
    if in_folder:
        for name, value in (("--columns", columns), ("--image-root", args.image_root)):
            if value:
                raise ValueError(
                    f"{name} is for tables, and {path} is a {source_format} input: leave it out, "
                    "or name the table with --input"
                )
    root = args.image_root or (path if in_folder else _folder(path))
    return Source(
        path=path,
        format=source_format,
        labels=labels,
        columns=columns,
        image_root=absolute(root),
        confine_images=args.image_root is not None,
        images_only=images_only,
    )


def _labels(args: argparse.Namespace) -> tuple[Label, ...]:
    return tuple(Label.parse(text) for text in args.label)


def _input_format(path: str, name: InputFormat | Literal["auto"]) -> InputFormat:
    if name != "auto":
        return name
    tables: tuple[InputFormat, ...] = ("csv", "jsonl", "parquet")
    plain = path.rstrip("/")
    plain = plain.removesuffix(compression(plain))
    for table in tables:
        if plain.endswith(f".{table}"):
            return table
    folders = [files.join(files.escape(path), name, "*") for name in ("img", "box", "key")]
    if all(files.list_files(folder) for folder in folders):
        return "sroie"
    if FileSystems.get_scheme(path) is None and not Path(path).is_dir():
        raise ValueError(
            f"--input {path} is neither a folder nor named .csv, .jsonl or .parquet: check the "
            "path, or set --input-format"
        )
    return "folder"


def absolute(path: str) -> str:
    """Returns a path that means the same in any process."""
    if FileSystems.get_scheme(path) is not None:
        return path
    return str(Path(path).absolute())


def _folder(path: str) -> str:
    if has_pattern_folder(path):
        raise ValueError(f"--input {path} matches tables in many folders: set --image-root")
    return str(FileSystems.split(path)[0])


def _pairs(text: str, option: str) -> dict[str, str]:
    pairs = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, separator, value = part.partition("=")
        if not (key and separator and value):
            raise ValueError(f"{option} takes KEY=VALUE,…, got {part!r}")
        if key in pairs:
            raise ValueError(f"{option} names {key} twice: keep one")
        pairs[key] = value
    return pairs


def _shards(text: str | None, fractions: dict[str, float]) -> dict[str, int] | None:
    if text is None:
        return None
    named: dict[str, Any] = (
        _pairs(text, "--shards") if "=" in text else dict.fromkeys(fractions, text)
    )
    try:
        return {name: int(number) for name, number in named.items()}
    except ValueError:
        raise ValueError(f"--shards takes a number or NAME=N,…, got {text!r}") from None
