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
from pyarrow.parquet import ParquetFile

from beam_jobs.errors import BuildError
from beam_jobs.storage import files

_BATCH_ROWS = 1 << 10  # turned into Python objects at a time

RowGroup = tuple[str, int, int]  # path, size of the file in bytes, number of the row group


def read_header(table: FileMetadata) -> tuple[list[str], list[RowGroup]]:
    """Reads the names of a table's columns, and lists its row groups.

    Raises:
      BuildError: the file can't be read as Parquet.
    """
    path, size_bytes = table.path, table.size_in_bytes
    with _opened(path, size_bytes) as file:
        groups = [(path, size_bytes, number) for number in range(file.num_row_groups)]
        return file.schema_arrow.names, groups


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
