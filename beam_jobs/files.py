"""Whole files and byte ranges on any file system that Beam knows."""

import errno
import logging
import os
import re
import sys
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO

from apache_beam.io.filesystem import BeamIOError, FileMetadata
from apache_beam.io.filesystems import FileSystems
from apache_beam.utils.retry import with_exponential_backoff

from beam_jobs import hadoop
from beam_jobs.errors import BuildError
from beam_jobs.stores import S3, BlobStorage, CloudStorage, Store

_TRIES = 6  # about half a minute
_PARALLEL_READS = 16
_READ_AHEAD = 64
_PIECE_BYTES = 1 << 24
_ERRORS_OF_THE_MACHINE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE)
_STORES: dict[str, type[Store]] = {
    "s3": S3,
    "gs": CloudStorage,
    "azfs": BlobStorage,
    "hdfs": hadoop.Hdfs,
}


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

    Raises:
      FileNotFoundError: there is no such file.
      OSError: the file can't be read.
      BuildError: the machine or the store failed, which says nothing of the file.
    """
    try:
        return (_read_local if is_local(path) else _read_remote)(path, offset, length)
    except MemoryError:
        raise
    except Exception as error:  # each file system raises its own kind of error
        if isinstance(error, OSError) and error.errno in _ERRORS_OF_THE_MACHINE:
            raise BuildError(
                f"{path} could not be read, which is no fault of the file: {error!r}; run the same "
                "command again once that is mended"
            ) from error
        if _refuses_credentials(path, error):
            raise BuildError(
                f"{path} could not be read, its store refused the credentials: {error!r}; renew "
                "them and run the same command again"
            ) from error
        if not is_local(path) and _may_pass(error):
            raise BuildError(
                f"{path} could not be read in {_TRIES} tries: {error!r}; run the same command "
                "again once its store answers"
            ) from error
        if isinstance(error, FileNotFoundError) or _status(error) == HTTPStatus.NOT_FOUND:
            raise FileNotFoundError(f"{path} does not exist") from error
        raise OSError(f"{path} could not be read: {error!r}") from error


def _read_local(path: str, offset: int, length: int) -> bytes:
    with Path(path).open("rb") as file:
        file.seek(offset)
        return file.read(min(length, os.fstat(file.fileno()).st_size))


def _may_pass(error: Exception) -> bool:
    """Whether the store or the network failed, rather than the file."""
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if (status := _status(error)) is not None:
        return status >= 500 or status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
    # An error of this machine has an errno; the clients of the stores raise what they like.
    final = isinstance(error, ValueError | FileNotFoundError | MemoryError)
    return not final and not getattr(error, "errno", 0)


def _refuses_credentials(path: str, error: Exception) -> bool:
    """Whether a store knows none of its files to these credentials, as when they have expired."""
    status = _status(error)
    # To S3, a HEAD request with a token that has expired is a bad request.
    expired = status == HTTPStatus.BAD_REQUEST and path.startswith("s3://")
    return expired or status == HTTPStatus.UNAUTHORIZED


def _status(error: Exception) -> int | None:
    """The HTTP status that a store's client raised."""
    status = getattr(error, "code", getattr(error, "status_code", None))
    if isinstance(status, int):
        return int(status)
    return hadoop.status(error)


@with_exponential_backoff(
    num_retries=_TRIES - 1,
    initial_delay_secs=1,
    logger=logging.getLogger(__name__).info,
    retry_filter=_may_pass,
)
def _read_remote(path: str, offset: int, length: int) -> bytes:
    """Reads through the stream below Beam's buffer, which fetches 16 MB for every small read."""
    with _store(path).open(path, buffer_bytes=min(length, _PIECE_BYTES)) as file:
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
    with _store(path).create(temporary) as file:
        yield file
    move([(temporary, path)])


def write(path: str, data: bytes) -> None:
    """Writes a whole file, atomically."""
    with create(path) as file:
        file.write(data)


def move(pairs: Iterable[tuple[str, str]]) -> None:
    """Renames files within one file system, replacing what is there."""
    if pairs := list(pairs):
        _store(pairs[0][0]).move(pairs)


def exists(path: str) -> bool:
    """Whether a file, or on a file system with folders a folder, is there."""
    return _store(path).exists(path)


def escape(path: str) -> str:
    """Makes a path match itself as a glob pattern."""
    return re.sub(r"([*?[])", r"[\1]", path)


def list_files(pattern: str) -> list[FileMetadata]:
    """Metadata of the files that match a glob pattern; none is no error."""
    try:
        return _store(pattern).match(pattern)
    except BeamIOError as error:
        if _tells_of_absence(error):
            return []
        raise


def list_below(directory: str) -> list[str]:
    """Paths of all files below a directory."""
    return [metadata.path for metadata in list_files(join(escape(directory), "**"))]


def _tells_of_absence(error: Exception) -> bool:
    """Whether all that is wrong is that a file is not there; Blob Storage's status is 404."""
    if isinstance(error, BeamIOError):
        causes = (error.exception_details or {}).values()
        return bool(causes) and all(_tells_of_absence(cause) for cause in causes)
    return isinstance(error, FileNotFoundError) or _status(error) == HTTPStatus.NOT_FOUND


def delete(paths: list[str]) -> None:
    """Deletes files."""
    if paths:
        _store(paths[0]).delete(paths)


def delete_tree(directory: str) -> None:
    """Deletes everything below a directory; nothing there is no error."""
    if paths := list_below(directory):
        delete(paths)
    if FileSystems.get_filesystem(directory).has_dirs() and exists(directory):
        delete([directory])  # the folders that are left


def _store(path: str) -> Store:
    return store_of(FileSystems.get_scheme(path))


@cache
def store_of(scheme: str | None) -> Store:
    """The store of a scheme, with the job's options."""
    return _STORES.get(scheme or "", Store)()
