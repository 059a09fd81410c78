"""Lines of tables, read whole or in ranges that workers share."""

from collections.abc import Iterable, Iterator
from itertools import chain, repeat

from apache_beam.io.filesystem import FileMetadata

from beam_jobs.errors import BuildError
from beam_jobs.sources.decompress import compression, decompress
from beam_jobs.storage import files
from beam_jobs.storage.files import ByteRange

_RANGE_BYTES = 1 << 22  # of a table, read by one worker at a time
_PIECE_BYTES = 1 << 24
_LINE_BYTES = 1 << 16  # more than most lines have


def lines_of(path: str) -> Iterator[bytes]:
    """Yields the lines of a table, which may be compressed, with their line feeds.

    Raises:
      BuildError: the table can't be read to its end.
    """
    pieces = _pieces(path, 0, repeat(_PIECE_BYTES))
    return _split(decompress(path, pieces) if compression(path) else pieces)


def first_bytes(path: str) -> bytes:
    """Reads the beginning of a table, decompressed; b"" of an empty one.

    Raises:
      BuildError: the table can't be read.
    """
    pieces = _pieces(path, 0, repeat(_LINE_BYTES))
    return next(filter(None, decompress(path, pieces) if compression(path) else pieces), b"")


def line_ranges(table: FileMetadata) -> Iterator[ByteRange]:
    """Yields the ranges of a table that can be read apart: all of it if it is compressed."""
    size = table.size_in_bytes
    step = max(size, 1) if compression(table.path) else _RANGE_BYTES
    for start in range(0, max(size, 1), step):
        yield table.path, start, min(step, size - start)


def lines_of_range(part: ByteRange) -> Iterator[bytes]:
    """Yields the lines that begin in a range, with their line feeds; the last may end behind it.

    Of the lines 0123⏎ 5678⏎ the range of bytes 0 to 2 has the first, that of 2 to 6 the second,
    and that of 6 to 10 none.

    Raises:
      BuildError: the table can't be read to its end.
    """
    path, start, length = part
    if compression(path):
        yield from lines_of(path)
        return
    end = start + length
    position = max(start - 1, 0)  # where a line feed makes a line begin at the range's first byte
    pieces = _pieces(path, position, chain([end - position], repeat(_LINE_BYTES)))
    for line in _split(pieces):
        if position >= start:
            yield line
        position += len(line)
        if position >= end:
            return


def _split(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        # The last part has no line feed yet: the next piece may go on with it.
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest


def _pieces(path: str, start: int, lengths: Iterable[int]) -> Iterator[bytes]:
    """Yields a file's bytes from `start` on, in pieces of these lengths, until it ends."""
    for length in lengths:
        try:
            piece = files.read_range(path, start, length)
        except OSError as error:
            raise BuildError(f"{error}: make it readable, or leave it out of --input") from error
        yield piece
        if len(piece) < length:
            return
        start += length
