"""Whole files and byte ranges on any file system that Beam knows."""

import errno
import os
import random
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from http import HTTPStatus
from typing import BinaryIO, TypeVar

from apache_beam.io.filesystem import BeamIOError, FileMetadata
from apache_beam.io.filesystems import FileSystems

from beam_jobs.errors import BuildError
from beam_jobs.storage import hdfs
from beam_jobs.storage.blob_storage import BlobStorage
from beam_jobs.storage.cloud_storage import CloudStorage
from beam_jobs.storage.local_files import Local
from beam_jobs.storage.object_stores import PARALLEL_REQUESTS, FileState, Store, http_status
from beam_jobs.storage.object_stores import escape as escape
from beam_jobs.storage.s3 import S3

T = TypeVar("T")
ByteRange = tuple[str, int, int]  # path, offset, length
_PAUSES_S = (1, 2, 4, 8, 16)
_PATIENCE_S = 30  # a store's client may have tried for minutes by itself
_READ_AHEAD = 64
_READ_AHEAD_BYTES = 1 << 28
_PIECE_BYTES = 1 << 24
# What says nothing of the file: this machine is short of something, or its mount has gone.
_ERRORS_OF_THE_MACHINE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE)
_STORES: dict[str, type[Store]] = {
    "": Local,
    "s3": S3,
    "gs": CloudStorage,
    "azfs": BlobStorage,
    "hdfs": hdfs.Hdfs,
}


def is_local(path: str) -> bool:
    """Returns whether a path has no scheme, as those of this machine."""
    return "://" not in path


def join(directory: str, *names: str) -> str:
    """Joins a directory, which may end in a slash, and names below it."""
    return "/".join((directory.rstrip("/"), *names))


def read(path: str) -> bytes:
    """Reads a whole file, as stored."""
    return read_range(path, 0, sys.maxsize)


def read_range(path: str, offset: int, length: int) -> bytes:
    """Reads `length` bytes from `offset` on, fewer only where the file ends.

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
                "command again once that is fixed"
            ) from error
        if _refuses_credentials(path, error):
            raise BuildError(
                f"{path} could not be read, its store refused the credentials: {error!r}; renew "
                "them and run the same command again"
            ) from error
        if not is_local(path) and _may_pass(error):
            raise BuildError(
                f"{path} could not be read in several tries: {error!r}; run the same command "
                "again once its store answers"
            ) from error
        if isinstance(error, FileNotFoundError) or _status(error) == HTTPStatus.NOT_FOUND:
            raise FileNotFoundError(f"{path} does not exist") from error
        raise OSError(f"{path} could not be read: {error!r}") from error


def _read_local(path: str, offset: int, length: int) -> bytes:
    with open(path, "rb", opener=_open_at_once) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a regular file")
        file.seek(offset)
        return file.read(min(length, status.st_size))


def _open_at_once(path: str, flags: int) -> int:
    """Opens a file without waiting: a FIFO may never have a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _may_pass(error: Exception) -> bool:
    """Returns whether the store or the network failed, rather than the file."""
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if (status := _status(error)) is not None:
        return status >= 500 or status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
    # An error of this machine has an errno; the clients of the stores raise what they like.
    final = isinstance(error, ValueError | FileNotFoundError | MemoryError)
    return not final and not getattr(error, "errno", 0)


def _refuses_credentials(path: str, error: Exception) -> bool:
    """Returns whether a store refuses these credentials for all files, as after they expired."""
    status = _status(error)
    # To S3, a HEAD request with a token that has expired is a bad request.
    expired = status == HTTPStatus.BAD_REQUEST and path.startswith("s3://")
    # Azure forbids what a token that has expired asks for, and names the reason. Other 403s may be
    # of one file.
    invalid = getattr(error, "error_code", None) == "AuthenticationFailed"
    return expired or invalid or status == HTTPStatus.UNAUTHORIZED


def _status(error: Exception) -> int | None:
    """Returns the HTTP status that a store's client raised, None if it raised none."""
    status = http_status(error)
    return hdfs.status(error) if status is None else status


def _read_remote(path: str, offset: int, length: int) -> bytes:
    deadline_s = time.monotonic() + _PATIENCE_S
    for pause_s in _PAUSES_S:
        try:
            return _read_once(path, offset, length)
        except Exception as error:  # each store's client raises its own kind of error
            if not _may_pass(error) or time.monotonic() > deadline_s:
                raise
        # At random, so that workers which failed together do not come back together.
        time.sleep(pause_s * random.uniform(0.5, 1))
    return _read_once(path, offset, length)


def _read_once(path: str, offset: int, length: int) -> bytes:
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
        yield from (read_range(*byte_range) for byte_range in ranges)
        return
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        pending: deque[tuple[int, Future[bytes]]] = deque()
        ahead = 0
        for path, offset, length in ranges:
            # A record may have hundreds of megabytes: 64 of them would not fit into memory.
            while pending and (len(pending) >= _READ_AHEAD or ahead + length > _READ_AHEAD_BYTES):
                size, future = pending.popleft()
                yield future.result()
                ahead -= size
            pending.append((length, pool.submit(read_range, path, offset, length)))
            ahead += length
        for _, future in pending:
            yield future.result()


def create(path: str) -> AbstractContextManager[BinaryIO]:
    """Opens a file for writing that appears under its name only when it is whole."""
    return _store(path).create(path)


def write(path: str, data: bytes) -> None:
    """Writes a whole file, atomically."""
    with create(path) as file:
        file.write(data)


def move(pairs: Iterable[tuple[str, str]]) -> None:
    """Renames files within one file system, replacing what is there."""
    if pairs := list(pairs):
        _store(pairs[0][0]).move(pairs)


@contextmanager
def _asking(path: str) -> Iterator[None]:
    """Makes a sentence of an error of a store's client."""
    try:
        yield
    except (BuildError, ValueError):
        raise
    except Exception as error:
        if is_local(path):
            raise
        raise BuildError(
            f"{path} can't be accessed: {error!r}; check its name, the credentials of its store "
            "and the network"
        ) from error


def exists(path: str) -> bool:
    """Returns whether a file exists, or on a file system with folders a folder."""
    with _asking(path):
        return _store(path).exists(path)


def state(path: str) -> FileState | None:
    """Returns size and version of a file, None if there is no such file."""
    with _asking(path):
        return _store(path).state(path)


def entries(folder: str) -> Iterator[str]:
    """Yields the paths of the files and folders in a folder; those of folders end in a slash.

    Args:
      folder: ends in a slash.
    """
    return _store(folder).entries(folder)


def map_paths(function: Callable[[str], T], paths: Sequence[str]) -> Iterator[T]:
    """Yields what a function returns for each path, in order; for remote paths in parallel."""
    if all(map(is_local, paths)):
        yield from map(function, paths)
        return
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        yield from pool.map(function, paths)


def list_files(pattern: str) -> list[FileMetadata]:
    """Lists the files that match a glob pattern; it is no error if there are none."""
    with _asking(pattern):
        try:
            return _store(pattern).match(pattern)
        except Exception as error:  # each store's client has errors of its own
            if _tells_of_absence(error):
                return []
            raise


def list_below(directory: str) -> list[str]:
    """Lists the paths of all files below a directory."""
    with _asking(directory):
        return _store(directory).list_below(directory)


def _tells_of_absence(error: Exception) -> bool:
    """Returns whether an error says only that a file is not there, as status 404 does."""
    if isinstance(error, BeamIOError):
        causes = (error.exception_details or {}).values()
        return bool(causes) and all(_tells_of_absence(cause) for cause in causes)
    return isinstance(error, FileNotFoundError) or _status(error) == HTTPStatus.NOT_FOUND


def delete(paths: list[str]) -> None:
    """Deletes files."""
    if paths:
        _store(paths[0]).delete(paths)


def delete_tree(directory: str) -> None:
    """Deletes a directory and everything below it; it is no error if nothing is there."""
    _store(directory).delete_tree(directory)


def _store(path: str) -> Store:
    return store_of(FileSystems.get_scheme(path))


@cache
def store_of(scheme: str | None) -> Store:
    """Returns the store of a scheme, with the job's options; made once in a process."""
    return _STORES.get(scheme or "", Store)()
