"""Parquet tables: their header, and the rows of a row group.

Only the columns that are asked for are read. Beam's reader would read all of them, and stop at a
type that Python lacks, though nothing uses the column.
"""

import io
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from apache_beam.io.filesystem import FileMetadata
from pyarrow.parquet import FileMetaData, ParquetFile

from beam_jobs.errors import BuildError
from beam_jobs.shown import shortened
from beam_jobs.sources.names import MAX_CHARACTERS
from beam_jobs.storage import files

_BATCH_ROWS = 1 << 10  # turned into Python objects at a time

_TO_FILES = "write the images to files, and name these in the column"

RowGroup = tuple[str, int, int]  # path, size of the file in bytes, number of the row group


def read_header(
    table: FileMetadata, *, names: Collection[str], labels: Collection[str]
) -> tuple[list[str], list[RowGroup]]:
    """Reads the names of a table's columns, and lists its row groups.

    Args:
      table: the file.
      names: columns that hold names, such as that of the image.
      labels: columns with labels.

    Raises:
      BuildError: the file can't be read as Parquet, or a column holds neither text nor numbers.
    """
    path, size_bytes = table.path, table.size_in_bytes
    with _opened(path, size_bytes) as file:
        schema = file.schema_arrow
        for field in schema:
            if field.name in names or field.name in labels:
                _check_type(path, field)
            if field.name in names:
                _check_size(path, field, file.metadata)
        groups = [(path, size_bytes, number) for number in range(file.num_row_groups)]
        return schema.names, groups


def _check_type(path: str, field: pa.Field) -> None:
    """Raises BuildError if a column has no type of text or numbers, or one that Python lacks."""
    types = pa.types
    type_ = field.type.value_type if types.is_dictionary(field.type) else field.type
    column = f"{path}: column {field.name} is of type {shortened(str(type_))}"
    if types.is_nested(type_) and _holds_bytes(type_):
        raise BuildError(f"{column} and seems to hold images: {_TO_FILES}")
    if types.is_nested(type_) or types.is_boolean(type_):
        raise BuildError(f"{column}, must be text or numbers: write it anew as one of these")
    if getattr(type_, "unit", "") == "ns" or types.is_duration(type_) or types.is_interval(type_):
        raise BuildError(f"{column}, which Python has not: cast it to text (string), or to int64")


def _check_size(path: str, field: pa.Field, metadata: FileMetaData) -> None:
    """Raises BuildError if the values of a column are too long for names, before any is read."""
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            mean_bytes = column.total_uncompressed_size / max(column.num_values, 1)
            if column.path_in_schema == field.name and mean_bytes > MAX_CHARACTERS:
                raise BuildError(
                    f"{path}: column {field.name} has values of {mean_bytes:,.0f} bytes and seems "
                    f"to hold images: {_TO_FILES}"
                )


def read_rows(group: RowGroup, columns: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a row group; bytes become text.

    Raises:
      BuildError: the row group can't be read.
    """
    path, size_bytes, number = group
    with _opened(path, size_bytes) as file:
        used = [field for field in file.schema_arrow if field.name in columns]
        holds_bytes = any(_holds_bytes(field.type) for field in used)
        names = [field.name for field in used]
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[number], columns=names):
            rows = batch.to_pylist()
            yield from map(_decoded, rows) if holds_bytes else rows


class _RangeFile(io.RawIOBase):
    """A file for pyarrow that is read in ranges."""

    def __init__(self, path: str, size_bytes: int) -> None:
        self._path = path
        self._size_bytes = size_bytes
        self._position = 0

    # pyarrow asks for these before it reads.
    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}
        self._position = start[whence] + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        length = self._size_bytes - self._position if size < 0 else size
        data = files.read_range(self._path, self._position, length)
        self._position += len(data)
        return data


@contextmanager
def _opened(path: str, size_bytes: int) -> Iterator[ParquetFile]:
    try:
        with _RangeFile(path, size_bytes) as raw, ParquetFile(raw) as file:
            yield file
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = str(error).rstrip(".")
        raise BuildError(
            f"{path} can't be read as Parquet: {reason}: copy or write it again"
        ) from error


def _holds_bytes(type_: pa.DataType) -> bool:
    """Returns whether values of an Arrow type are or contain bytes, as older tools wrote text."""
    if pa.types.is_dictionary(type_):
        return _holds_bytes(type_.value_type)
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return True
    return any(_holds_bytes(type_.field(number).type) for number in range(type_.num_fields))


def _decoded(value: Any) -> Any:
    """Decodes bytes at any depth; those that are not UTF-8 become lone surrogates."""
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    if isinstance(value, dict):
        return {name: _decoded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return value
