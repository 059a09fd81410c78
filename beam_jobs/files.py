"""Whole files and byte ranges on any file system that Beam knows."""

import os
import re
import sys
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems

_PARALLEL_READS = 16
_READ_AHEAD = 64
_PIECE_BYTES = 1 << 24


def is_local(path: str) -> bool:
    """Whether a path has no scheme."""
    return "://" not in path


def join(directory: str, *names: str) -> str:
    """Path below a directory; `directory` may end in a slash."""
    return "/".join((directory.rstrip("/"), *names))


def read(path: str) -> bytes:
    """The whole file, as stored."""
    return read_range(path, 0, sys.maxsize)


def read_range(path: str, offset: int, length: int) -> bytes:
    """`length` bytes from `offset`; fewer only where the file ends.

    Remote files are read through the stream below Beam's buffer: that buffer fetches 16 MB for
    every small read.
    """
    if is_local(path):
        with Path(path).open("rb") as local:
            local.seek(offset)
            return local.read(min(length, os.fstat(local.fileno()).st_size))
    with _open(path, buffer_bytes=min(length, _PIECE_BYTES)) as file:
        stream = getattr(file, "raw", file)
        stream.seek(offset)
        pieces = []
        while length > 0:
            wanted = min(length, _PIECE_BYTES)
            piece = stream.read(wanted)
            pieces.append(piece)
            length -= len(piece)
            # A reader without a raw stream (Cloud Storage) is short only at the end, where
            # asking again would cost a request.
            if not piece or (stream is file and len(piece) < wanted):
                break
        return b"".join(pieces)


def read_ranges(ranges: Iterable[tuple[str, int, int]]) -> Iterator[bytes]:
    """Yields the bytes of each (path, offset, length) in order; remote ones are read ahead."""
    ranges = list(ranges)
    if all(is_local(path) for path, _, _ in ranges):
        yield from (read_range(*each) for each in ranges)
        return
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        pending = []
        for each in ranges:
            pending.append(pool.submit(read_range, *each))
            if len(pending) >= _READ_AHEAD:
                yield pending.pop(0).result()
        for future in pending:
            yield future.result()


@contextmanager
def create(path: str) -> Iterator[BinaryIO]:
    """Opens a file for writing that appears under its name only when it is whole.

    Two writers of one path do no harm: each writes its own temporary file, the last rename wins.
    """
    directory, name = FileSystems.split(path)
    temporary = FileSystems.join(directory, f".{name}.{uuid.uuid4().hex}.tmp")
    with FileSystems.create(temporary, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        yield file
    move([(temporary, path)])


def write(path: str, data: bytes) -> None:
    """Writes a whole file, atomically."""
    with create(path) as file:
        file.write(data)


def move(pairs: Iterable[tuple[str, str]]) -> None:
    """Renames files within one file system, replacing what is there."""
    sources, targets = zip(*pairs, strict=True)
    for directory in {FileSystems.split(target)[0] for target in targets}:
        if FileSystems.get_filesystem(directory).has_dirs() and not exists(directory):
            FileSystems.mkdirs(directory)
    FileSystems.rename(list(sources), list(targets))


def exists(path: str) -> bool:
    """Whether a file, or on a file system with folders a folder, is there."""
    return bool(FileSystems.exists(path))


def escape(path: str) -> str:
    """Makes a path match itself as a glob pattern."""
    return re.sub(r"([*?[])", r"[\1]", path)


def list_files(pattern: str) -> list[FileMetadata]:
    """Metadata of the files that match a glob pattern; none is no error."""
    try:
        return list(FileSystems.match([pattern])[0].metadata_list)
    except BeamIOError as error:
        causes = (error.exception_details or {}).values()
        if causes and all(isinstance(cause, FileNotFoundError) for cause in causes):
            return []
        raise


def delete(paths: list[str]) -> None:
    """Deletes files."""
    FileSystems.delete(paths)


def delete_tree(directory: str) -> None:
    """Deletes everything below a directory; nothing there is no error."""
    if paths := [metadata.path for metadata in list_files(join(directory, "**"))]:
        delete(paths)
    if FileSystems.get_scheme(directory) is None and exists(directory):
        delete([directory])  # the folders that are left


def _open(path: str, *, buffer_bytes: int) -> BinaryIO:
    if path.startswith("gs://"):
        from apache_beam.io.gcp.gcsio import GcsIO

        return GcsIO().open(path, "rb", read_buffer_size=buffer_bytes)
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
