"""Arguments that several commands have."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

from apache_beam.io.filesystems import FileSystems

from beam_jobs.images.image import ImageOptions
from beam_jobs.layouts.descriptors import LayoutFrom
from beam_jobs.models.saved_model import SavedModel
from beam_jobs.sources.decompress import compression
from beam_jobs.sources.source import COLUMNS, InputFormat, Source
from beam_jobs.sources.tables import has_pattern_folder
from beam_jobs.storage import files
from beam_jobs.storage.paths import absolute
from schemas.command_line import Flag, Options, parse_value
from schemas.receipt import Label

SHARDING = ("shards", "shard_size_mb", "shards_multiple_of")
_MIB = 1 << 20
_SIGNATURE = "serving_default"  # of a model that describes receipts


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
    full_decode=Flag(
        help="decode large JPEG files at a half, a quarter or an eighth of their size where that "
        "suffices, and in gray with --channels 1: less work, but a copy in a lossless format is no "
        "duplicate then",
    ),
    restart_rows=Flag(
        help="mark the rows of each JPEG file, so that a reader can decode some rows without the "
        "others; every file is encoded again",
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


def parse_layout_from(text: str, *, kinds: Sequence[LayoutFrom]) -> str:
    """Returns a value of --layout-from, if it is one: one of the kinds, or model=DIR.

    Raises:
      ValueError: it is none.
    """
    kind, _, directory = text.partition("=")
    if kind not in kinds or bool(directory) != (kind == "model"):
        allowed = ", ".join("model=DIR" if one == "model" else one for one in kinds)
        raise ValueError(f"must be one of {allowed}, got {text!r}")
    return text


def read_layout_from(text: str) -> tuple[LayoutFrom, SavedModel | None]:
    """Splits `model=DIR`, and reads what there is to know of the model."""
    kind, _, directory = text.partition("=")
    model = SavedModel.read(absolute(directory), _SIGNATURE) if directory else None
    return cast(LayoutFrom, kind), model


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
        help="processes of the local runner, slots of Flink, cores of Spark (default: all there "
        "are)",
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


def read_source(
    args: argparse.Namespace,
    labels: tuple[Label, ...] = (),
    *,
    images_only: bool = False,
    layout: str | None = None,
    needs_boxes: bool = False,
) -> Source:
    """Makes the source that parsed arguments name; the others are as in `Source`.

    Raises:
      ValueError: an argument has a value that is not allowed.
    """
    path = absolute(args.input).rstrip("/") or "/"
    source_format = _input_format(path, args.input_format)
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
        layout=layout,
        needs_boxes=needs_boxes,
    )


def _input_format(path: str, name: InputFormat | Literal["auto"]) -> InputFormat:
    if name != "auto":
        return name
    tables: tuple[InputFormat, ...] = ("csv", "jsonl", "parquet")
    plain = path.rstrip("/").lower()
    plain = plain.removesuffix(compression(plain))
    for table in tables:
        if plain.endswith(f".{table}"):
            return table
    if all(_has_files(path, folder) for folder in ("img", "box", "key")):
        return "sroie"
    if all(_has_files(path, folder) for folder in ("img", "box", "entities")):
        raise ValueError(
            f"--input {path} holds SROIE as it is downloaded: make entities/X.txt key/X.json, and "
            "box/X.txt box/X.csv"
        )
    if files.is_local(path) and not Path(path).is_dir():
        raise ValueError(
            f"--input {path} is neither a folder nor named .csv, .jsonl or .parquet: check the "
            "path, or set --input-format"
        )
    return "folder"


def _has_files(path: str, folder: str) -> bool:
    return bool(files.list_files(files.join(files.escape(path), folder, "*")))


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


def parse_shards(text: str | None, fractions: dict[str, float]) -> dict[str, int] | None:
    """Parses the number of shards of each split, or of every one of them.

    Raises:
      ValueError: it is neither a number nor such pairs.
    """
    if text is None:
        return None
    named: dict[str, Any] = (
        _pairs(text, "--shards") if "=" in text else dict.fromkeys(fractions, text)
    )
    try:
        return {name: int(number) for name, number in named.items()}
    except ValueError:
        raise ValueError(f"--shards takes a number or NAME=N,…, got {text!r}") from None
