"""Arguments of `beam_jobs.forget`."""

import argparse
import json

from beam_jobs.arguments.common import add_running
from beam_jobs.options import ForgetOptions
from beam_jobs.sources.names import forms_of
from beam_jobs.storage import files
from beam_jobs.storage.paths import absolute
from beam_jobs.writing.output import read_base
from schemas.command_line import CommandParser


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
        "--ids",
        metavar="FILE",
        help="ids of the receipts in UTF-8, a line each, as they are or as JSON strings "
        "(default: none)",
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
    # In all forms of Unicode: older versions and the quarantine have ids as their inputs had them.
    ids = tuple(sorted({form for id_ in ids for form in forms_of(id_)}))
    return ForgetOptions(output=directory, base=base, ids=ids, excluded=args.excluded)


def _read_ids(path: str) -> tuple[str, ...]:
    """Reads a file with an id on each line, as it is or as a JSON string.

    Editors and tables add a byte order mark, white space or quotes. So an id that has white space
    at its ends, a line break, or a quote at its start must be a JSON string: `" r1"`.
    """
    try:
        text = files.read(absolute(path)).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"--ids {path} is not UTF-8, {error}: save it as UTF-8") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"--ids {path} can't be read: {error}") from error
    # Not `splitlines`, which also splits at characters that an id may have.
    lines = text.split("\n") if "\n" in text else text.split("\r")
    ids = {_parse_id(line.strip(), f"--ids {path}, line {n}") for n, line in enumerate(lines, 1)}
    if not (ids := ids - {""}):
        raise ValueError(f"--ids {path} holds no id: write one on each line")
    return tuple(sorted(ids))


def _parse_id(line: str, place: str) -> str:
    if line.startswith('"'):
        try:
            id_ = json.loads(line)
        except ValueError as error:
            raise ValueError(
                f"{place} begins with a quote, and is no JSON string: write it as json.dumps does"
            ) from error
        return str(id_)
    if "\r" in line:
        raise ValueError(
            f"{place} has a carriage return within it, {line[:100]!r}: write an id that has one "
            "as a JSON string"
        )
    return line
