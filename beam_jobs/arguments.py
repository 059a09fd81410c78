"""Command-line arguments of the build, and the options they stand for."""

import argparse
from pathlib import Path
from typing import Any, Literal

from apache_beam.io.filesystems import FileSystems

from beam_jobs.images.image import ImageOptions
from beam_jobs.options import BuildOptions
from beam_jobs.sharding.splits import parse_fractions
from beam_jobs.sources.decompress import compression
from beam_jobs.sources.source import COLUMNS, INPUT_FORMATS, InputFormat, Source
from beam_jobs.sources.tables import has_pattern_folder
from beam_jobs.storage import files
from schemas.receipt import LABEL_TYPES, Label

_EXAMPLES = """\
examples:
  %(prog)s --input receipts.jsonl --output data/receipts
  %(prog)s --input sroie/ --input-format sroie --output data/sroie --shards 8
  %(prog)s --input gs://b/table.parquet --output gs://b/receipts --label total:float \\
      --runner DataflowRunner --project p --region r --temp_location gs://b/tmp \\
      --setup_file ./setup.py

A build that was interrupted resumes when the same command is run again. Every other option is
passed to Beam: https://beam.apache.org/documentation/runners/capability-matrix/
"""


def parser() -> argparse.ArgumentParser:
    """The build's own arguments; all others are Beam's."""
    image, options = ImageOptions(), "%(default)s"
    result = argparse.ArgumentParser(
        prog="python -m beam_jobs.build",
        usage="%(prog)s --input PATH --output DIR [options]",
        description="Turns receipt images and their labels into TFRecord shards in which every "
        "layout is evenly spread.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    group = result.add_argument_group("input")
    group.add_argument(
        "--input",
        required=True,
        help="table, folder of images, or glob pattern of tables; what exists under this very name "
        "is not taken for a pattern, and a table may be a folder of part files",
    )
    group.add_argument(
        "--input-format",
        choices=["auto", *INPUT_FORMATS],
        default="auto",
        help="csv, jsonl and parquet are tables with a row a receipt; in a folder the first "
        "subfolders are layouts; sroie is a folder of img/ box/ key/ (default: by the name). One "
        "worker reads a CSV or a compressed table, at some 60,000 rows/s, or 12,000 with 40 boxes "
        "each: write large ones as several files, JSON lines or Parquet",
    )
    group.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="NAME:TYPE",
        help=f"a label every receipt has; TYPE is {', '.join(LABEL_TYPES)}; may be repeated",
    )
    group.add_argument(
        "--columns",
        default="",
        metavar="KEY=NAME,…",
        help=f"table columns that are not called {', '.join(COLUMNS)}",
    )
    group.add_argument(
        "--image-root",
        metavar="DIR",
        help="folder that image names in a table start from; with it, absolute names must lie in "
        "that folder, too (default: the table's folder)",
    )
    group.add_argument(
        "--box-frame",
        choices=["stored", "upright"],
        default=image.box_frame,
        help="boxes are given in the file's own pixels, or in the image as its EXIF orientation "
        f"shows it; HEIC is always upright (default: {options})",
    )
    group = result.add_argument_group("output")
    group.add_argument("--output", required=True, help="dataset directory")
    group.add_argument(
        "--overwrite",
        action="store_true",
        help="replace a finished dataset, once the new one is complete",
    )
    group.add_argument("--dry-run", action="store_true", help="show the plan, read no image")
    group = result.add_argument_group("images")
    group.add_argument(
        "--encoding",
        choices=["jpeg", "raw"],
        default=image.encoding,
        help=f"store JPEG files, or decoded pixels of one size (default: {options})",
    )
    group.add_argument(
        "--max-side",
        type=int,
        default=image.max_side,
        metavar="PIXELS",
        help=f"scale larger images down to this longest side (default: {options})",
    )
    group.add_argument(
        "--quality", type=int, default=image.quality, help=f"of JPEG, 1 to 95 (default: {options})"
    )
    group.add_argument(
        "--raw-size",
        default="{}x{}".format(*image.raw_size),
        metavar="HEIGHTxWIDTH",
        help=f"size of raw images (default: {options})",
    )
    group.add_argument(
        "--fit",
        choices=["pad", "stretch"],
        default=image.fit,
        help=f"how raw images get their size (default: {options})",
    )
    group.add_argument(
        "--channels",
        choices=["auto", "1", "3"],
        default="auto",
        help="1 for greyscale, 3 for RGB; auto keeps what comes, raw images become RGB",
    )
    group = result.add_argument_group("splits and shards")
    group.add_argument(
        "--split",
        default="train=0.9,validation=0.1",
        metavar="NAME=FRACTION,…",
        help=f"share of each split within every layout (default: {options})",
    )
    group.add_argument(
        "--shards",
        metavar="N",
        help="shards of each split: one number, or NAME=N,… (default: by --shard-size-mb)",
    )
    group.add_argument(
        "--shard-size-mb", type=int, default=128, metavar="MB", help=f"(default: {options})"
    )
    group.add_argument(
        "--shards-multiple-of",
        type=int,
        default=1,
        metavar="N",
        help="round the number of shards up to a multiple of the worker count",
    )
    group.add_argument(
        "--seed", type=int, default=0, help=f"of the random order (default: {options})"
    )
    group = result.add_argument_group("limits")
    group.add_argument(
        "--max-bad-fraction",
        type=float,
        default=0.05,
        metavar="F",
        help=f"fail, publishing nothing, if more inputs than this are bad (default: {options})",
    )
    group.add_argument(
        "--max-pixels",
        type=int,
        default=image.max_pixels,
        metavar="N",
        help=f"reject larger images before decoding (default: {options})",
    )
    group.add_argument(
        "--min-side",
        type=int,
        default=image.min_side,
        metavar="PIXELS",
        help=f"reject smaller images (default: {options})",
    )
    group.add_argument(
        "--max-input-mb",
        type=int,
        default=image.max_input_bytes >> 20,
        metavar="MB",
        help=f"reject larger files (default: {options})",
    )
    group.add_argument(
        "--max-image-memory-mb",
        type=int,
        default=image.max_memory_bytes >> 20,
        metavar="MB",
        help=f"reject images that take more memory to prepare (default: {options})",
    )
    group.add_argument(
        "--max-image-seconds",
        type=int,
        default=image.max_seconds,
        metavar="S",
        help="reject images that take more processor time: large ones, and all of a chunk in which "
        "a worker died; a worker that an image holds for ten times as long is ended (default: "
        f"{options})",
    )
    group = result.add_argument_group("running")
    group.add_argument(
        "--runner",
        default="local",
        help="local, DataflowRunner, PortableRunner, FlinkRunner, … (default: local)",
    )
    group.add_argument(
        "--workers", type=int, help="processes of the local runner (default: one a core)"
    )
    group.add_argument("--quiet", action="store_true", help="no progress bar")
    return result


def build_options(known: argparse.Namespace) -> BuildOptions:
    """Options from parsed arguments.

    Raises:
      ValueError: an argument has a value that is not allowed.
    """
    source_format = _input_format(known.input, known.input_format)
    path = _absolute(known.input).rstrip("/") or "/"
    columns = _pairs(known.columns, "--columns")
    if unknown := columns.keys() - set(COLUMNS):
        raise ValueError(f"--columns knows {', '.join(COLUMNS)}, not {', '.join(sorted(unknown))}")
    if source_format in ("folder", "sroie"):
        for name, value in (("--columns", columns), ("--image-root", known.image_root)):
            if value:
                raise ValueError(
                    f"{name} is for tables, and {path} is a {source_format} input: leave it out, "
                    "or name the table with --input"
                )
    root = known.image_root or (path if source_format in ("folder", "sroie") else _folder(path))
    image = ImageOptions(
        encoding=known.encoding,
        max_side=known.max_side,
        quality=known.quality,
        raw_size=_raw_size(known.raw_size),
        fit=known.fit,
        channels=_channels(known.channels, known.encoding),
        max_pixels=known.max_pixels,
        min_side=known.min_side,
        max_input_bytes=known.max_input_mb << 20,
        max_memory_bytes=known.max_image_memory_mb << 20,
        max_seconds=known.max_image_seconds,
        box_frame=known.box_frame,
    )
    fractions = parse_fractions(known.split)
    return BuildOptions(
        source=Source(
            path=path,
            format=source_format,
            labels=tuple(Label.parse(text) for text in known.label),
            columns=columns,
            image_root=_absolute(root),
            confine_images=known.image_root is not None,
        ),
        output=_absolute(known.output),
        image=image,
        splits=fractions,
        shards=_shards(known.shards, fractions),
        shard_size_mb=known.shard_size_mb,
        shards_multiple_of=known.shards_multiple_of,
        max_bad_fraction=known.max_bad_fraction,
        overwrite=known.overwrite,
        seed=known.seed,
    )


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


def _absolute(path: str) -> str:
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


def _raw_size(text: str) -> tuple[int, int]:
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal()):
        raise ValueError(f"--raw-size takes HEIGHTxWIDTH in pixels, as in 256x256, got {text!r}")
    return int(height), int(width)


def _channels(name: str, encoding: str) -> Any:
    if name == "auto":
        return 3 if encoding == "raw" else None
    return int(name)
