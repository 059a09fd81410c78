"""Tables: the files that a path means, and the columns that they must have."""

import codecs
import stat
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from apache_beam.io.filesystem import FileMetadata

from beam_jobs.errors import BuildError
from beam_jobs.shown import MESSAGE_CHARACTERS, shortened
from beam_jobs.sources.folders import is_system_file, local_files_below
from beam_jobs.sources.table_lines import first_bytes
from beam_jobs.storage import files


def list_tables(path: str) -> list[FileMetadata]:
    """Lists the tables that a path means.

    A path that exists is taken literally, whatever glob characters it holds: a file, or a folder of
    part files, as Spark writes it. Any other path is a glob pattern.

    Raises:
      BuildError: a table can't be read, or is not a regular file but, for example, a pipe.
    """
    path = path.rstrip("/")
    folder, _, name = path.rpartition("/")
    below_folder = files.join(files.escape(folder), name)
    if not files.is_local(path):
        # From the literal to the pattern, until something is there: a folder of part files, a file
        # of this very name, a pattern in a folder of this very name, a pattern throughout.
        parts = files.list_files(files.join(files.escape(path), "**"))
        return (
            [part for part in parts if _is_part(part, path)]
            or files.list_files(files.escape(path))
            or _visible(files.list_files(below_folder))
            or _visible(files.list_files(path))
        )
    if Path(path).is_dir():
        parts = [_local_table(part) for part in local_files_below(path)]
        return [part for part in parts if _is_part(part, path)]
    if Path(path).exists():
        return [_local_table(path)]
    return _visible(files.list_files(below_folder if Path(folder).is_dir() else path))


def has_pattern_folder(path: str) -> bool:
    """Returns whether the folder in a table's path is a glob pattern."""
    folder = path.rpartition("/")[0]
    if files.escape(folder) == folder:
        return False
    if files.is_local(path):
        return not Path(folder).is_dir()
    return not files.list_files(files.escape(path))


def check_lines(table: FileMetadata, *, of_json: bool) -> FileMetadata:
    """Checks that a table begins as lines of text, and returns it.

    Raises:
      BuildError: it is UTF-16 as Excel writes it, or a JSON array.
    """
    start = first_bytes(table.path)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in start[:2]:
        raise BuildError(f"{table.path} is not UTF-8 but UTF-16: save it as UTF-8")
    if of_json and start.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
        raise BuildError(
            f"{table.path} holds a JSON array: write each of its objects on a line of its own, for "
            "example with jq -c '.[]'"
        )
    return table


def check_header(
    path: str, header: Sequence[str], *, required: Sequence[str], optional: Collection[str]
) -> None:
    """Checks that a table has the columns of its rows.

    Raises:
      BuildError: a required column is missing, or several columns share a name that is in use.
    """
    if absent := [name for name in required if name not in header]:
        columns = shortened(", ".join(header), MESSAGE_CHARACTERS)
        raise BuildError(
            f"{path} has no column {', '.join(absent)}; its header is {columns}: name the columns "
            "with --columns, or fix the header"
        )
    counts = Counter(header)
    if repeated := [name for name in dict.fromkeys([*required, *optional]) if counts[name] > 1]:
        raise BuildError(
            f"{path} has several columns called {', '.join(repeated)}: give every column that is "
            "used its own name"
        )


def _is_part(file: FileMetadata, folder: str) -> bool:
    """Returns whether a file in a table's folder holds rows; Spark's own begin with _ or a dot."""
    name = file.path.removeprefix(folder + "/")
    own = is_system_file(name) or any(part.startswith("_") for part in name.split("/"))
    return file.size_in_bytes > 0 and not own


def _visible(tables: list[FileMetadata]) -> list[FileMetadata]:
    return [table for table in tables if not is_system_file(table.path.rpartition("/")[2])]


def _local_table(path: str) -> FileMetadata:
    try:
        status = Path(path).stat()
    except OSError as error:
        raise BuildError(
            f"{path} can't be read: {error}; make it readable, or leave it out of --input"
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise BuildError(f"{path} is not a regular file: write its rows to one")
    return FileMetadata(path, status.st_size)
