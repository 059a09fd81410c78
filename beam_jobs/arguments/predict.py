"""Arguments of `beam_jobs.predict`."""

import argparse

from beam_jobs.arguments.common import (
    IMAGES,
    add_columns,
    add_running,
    add_table,
    read_source,
)
from beam_jobs.images.image import ImageOptions
from beam_jobs.models.saved_model import SavedModel, image_options
from beam_jobs.options import RowSource
from beam_jobs.prediction.options import PredictOptions
from beam_jobs.prediction.records import RecordSource
from beam_jobs.storage import files
from beam_jobs.storage.paths import absolute
from beam_jobs.writing.output import read_manifest
from schemas.command_line import CommandParser, Flag, Options
from schemas.file_names import COMPLETED

_FORMATS = ("csv", "jsonl", "parquet", "folder", "dataset")
_EXAMPLES = """\
examples:
  %(prog)s models/first \\
      --input receipts.jsonl --output data/predictions
  %(prog)s models/first \\
      --input data/receipts --split validation --output data/validation
"""
_LIMITS = ("max_pixels", "min_side", "max_input_bytes", "max_memory_bytes", "max_seconds")
_PREDICT = Options(
    PredictOptions,
    batch_size=Flag(metavar="IMAGES"),
    files=Flag(
        metavar="N",
        default="one for each 100,000 inputs",
        help="number of files with predictions",
    ),
    max_bad_fraction=Flag(metavar="FRACTION"),
    overwrite=Flag(help="replace finished predictions, once the new ones are complete"),
)


def predict_parser() -> CommandParser:
    """Makes the parser of `beam_jobs.predict`; all other arguments are Beam's."""
    result = CommandParser(
        "beam_jobs.predict",
        "MODEL --input PATH --output DIR",
        "Predicts millions of receipts with an exported model: images of a table or a folder, or "
        "the records of a dataset directory.",
        epilog="A job that was interrupted resumes when the same command is run again. Every other "
        "option is passed to Beam, see "
        "https://beam.apache.org/documentation/runners/capability-matrix/",
        examples=_EXAMPLES,
    )
    result.add_argument(
        "model",
        metavar="MODEL",
        help="exported model, a SavedModel directory on any file system that Beam knows",
    )
    group = result.add_argument_group("input")
    add_table(group, _FORMATS, more="; or a dataset directory")
    add_columns(group)
    group.add_argument(
        "--version", type=int, metavar="N", help="version of the dataset (default: the newest)"
    )
    group.add_argument(
        "--split", metavar="SPLIT", help="split of the dataset (default: all of them)"
    )
    group = result.add_argument_group("output")
    group.add_argument("--output", required=True, metavar="DIR", help="directory of predictions")
    _PREDICT.add_to(group, "format", "files", "overwrite")
    group = result.add_argument_group("model")
    group.add_argument(
        "--signature",
        default="serving_default",
        metavar="NAME",
        help="signature of the model, one that takes image files (default: %(default)s)",
    )
    _PREDICT.add_to(group, "batch_size")
    built = "as the model's dataset was built, or"
    IMAGES.add_to(group, "max_side", default=f"{built} 1024")
    IMAGES.add_to(group, "quality", default=f"{built} 90")
    group = result.add_argument_group("limits")
    _PREDICT.add_to(group, "max_bad_fraction")
    IMAGES.add_to(group, *_LIMITS)
    add_running(result.add_argument_group("running"))
    return result


def predict_options(args: argparse.Namespace) -> PredictOptions:
    """Makes the options of a prediction from parsed arguments.

    Raises:
      ValueError: an argument has a value that is not allowed, or there is no model.
      BuildError: the model or the dataset can't be read.
    """
    model = SavedModel.read(absolute(args.model), args.signature)
    image = ImageOptions(**image_options(model.path))
    return _PREDICT.make(
        args,
        source=_row_source(args),
        output=absolute(args.output),
        model=model,
        image=IMAGES.replace(image, args),
    )


def _row_source(args: argparse.Namespace) -> RowSource:
    directory = absolute(args.input)
    is_dataset = files.exists(files.join(directory, COMPLETED))
    if args.input_format == "dataset" or (args.input_format == "auto" and is_dataset):
        return _record_source(args, directory)
    for flag in ("version", "split"):
        if getattr(args, flag) is not None:
            raise ValueError(
                f"--{flag} is for dataset directories, and {args.input} is none: leave it out, or "
                "name the directory with --input"
            )
    source = read_source(args, images_only=True)
    if source.format == "sroie":
        raise ValueError(
            f"--input {args.input} is a SROIE folder: give its folder of images, "
            f"{files.join(args.input, 'img')}"
        )
    return source


def _record_source(args: argparse.Namespace, directory: str) -> RecordSource:
    for flag in ("columns", "image_root", "max_side", "quality"):
        if getattr(args, flag):
            raise ValueError(
                f"--{flag.replace('_', '-')} is for image files, and {args.input} is a dataset "
                "directory: leave it out"
            )
    if not files.exists(files.join(directory, COMPLETED)):
        raise ValueError(
            f"--input {args.input} holds no finished dataset: check the path, or build it first"
        )
    manifest = read_manifest(directory, args.version)
    splits = tuple(manifest.splits)
    if args.split is not None and args.split not in splits:
        raise ValueError(f"{args.input} has no split {args.split!r}: choose {' or '.join(splits)}")
    return RecordSource(
        path=directory,
        version=manifest.version,
        splits=splits if args.split is None else (args.split,),
    )
