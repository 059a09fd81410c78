"""Stores: file systems as Beam has them, and object stores through the clients of Beam.

Beam makes a new client for every file that it opens and every listing, which takes S3's 0.2 s of
processor time and may ask for credentials. Here a process has one client of each store: `s3`,
`cloud_storage`, `blob_storage` and `hdfs` each hold one store, and whatever they use of Beam's
private attributes.
"""

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, TypeVar, cast

from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems

T = TypeVar("T")
PARALLEL_REQUESTS = 10  # the stores' clients keep no more connections
SPOOL_BYTES = 1 << 24  # of a file that is written, kept in memory


def escape(path: str) -> str:
    """Makes a path match itself as a glob pattern."""
    return re.sub(r"([*?[])", r"[\1]", path)


def literal_prefix(pattern: str) -> str:
    """Returns what stands before the first wildcard of a glob pattern; all of it if it has none."""
    return re.split(r"[*?[]", pattern, maxsplit=1)[0]


def http_status(error: Exception) -> int | None:
    """Returns the HTTP status that a store's client raised, None if it raised none."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # of boto3
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = getattr(error, "code", getattr(error, "status_code", None))
    return int(status) if isinstance(status, int) else None


@dataclass(frozen=True, kw_only=True)
class FileState:
    """State of a file: its size, and a version that differs whenever its contents differ."""

    size_bytes: int
    version: str


class Store:
    """A file system as Beam has it; paths are Beam's."""

    def open(self, path: str, *, buffer_bytes: int) -> BinaryIO:
        """Opens a file for reading.

        Its reader fetches at least `buffer_bytes` at a time, or has a `raw` that fetches no more
        than it is asked for.
        """
        return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """Opens a file for writing that gets its name when the block has ended well.

        Two writers of one path do no harm: each has its own temporary file, the last rename wins.
        """
        folder, name = FileSystems.split(path)
        temporary = FileSystems.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
        with FileSystems.create(temporary, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            yield file
        # Reached only if the block and the closing of the file have not failed.
        self.move([(temporary, path)])

    def exists(self, path: str) -> bool:
        """Returns whether a file exists, or on a file system with folders a folder."""
        return bool(FileSystems.exists(path))

    def state(self, path: str) -> FileState | None:
        """Returns size and version of a file, None if there is no such file."""
        if not self.exists(path):
            return None
        metadata = FileSystems.get_filesystem(path).metadata(path)
        return FileState(
            size_bytes=metadata.size_in_bytes, version=str(metadata.last_updated_in_seconds)
        )

    def match(self, pattern: str) -> list[FileMetadata]:
        """Lists the files that match a glob pattern.

        Raises:
          BeamIOError: among others, where there is no file of a name without a wildcard.
        """
        return list(FileSystems.match([pattern])[0].metadata_list)

    def list_below(self, directory: str) -> list[str]:
        """Lists the paths of all files below a directory; none if it is not there."""
        pattern = f"{escape(directory.rstrip('/'))}/**"
        return [metadata.path for metadata in self.match(pattern)]

    def entries(self, folder: str) -> Iterator[str]:
        """Yields the paths of the files and folders in a folder; those of folders end in a slash.

        Args:
          folder: ends in a slash.
        """
        seen = set()
        for path in self.list_below(folder):
            name, slash, _ = path.removeprefix(folder).partition("/")
            # A subfolder comes once for every file below it.
            if name not in seen:
                seen.add(name)
                yield f"{folder}{name}{slash}"

    def delete(self, paths: list[str]) -> None:
        """Deletes files and folders; in an object store, one that is gone already is no error."""
        FileSystems.delete(paths)

    def delete_tree(self, directory: str) -> None:
        """Deletes everything below a directory; nothing there is no error."""
        if paths := self.list_below(directory):
            self.delete(paths)

    def move(self, pairs: list[tuple[str, str]]) -> None:
        """Moves files within the store, replacing what is there."""
        self.make_folders(pairs)
        FileSystems.rename(*map(list, zip(*pairs, strict=True)))

    def make_folders(self, pairs: list[tuple[str, str]]) -> None:
        """Makes the folders that files are to be moved to."""
        for folder in {FileSystems.split(target)[0] for _, target in pairs}:
            if not self.exists(folder):
                FileSystems.mkdirs(folder)


class ObjectStore(Store, ABC):
    """A store without folders, in which an object appears as a whole once its upload has ended."""

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """Uploads what the block has written, under its name at once; nothing if it has failed."""
        with SpooledTemporaryFile(SPOOL_BYTES) as spooled:
            file = cast(BinaryIO, spooled)
            yield file
            size_bytes = file.tell()
            file.seek(0)
            self._upload(file, size_bytes, path)

    @abstractmethod
    def _upload(self, file: BinaryIO, size_bytes: int, path: str) -> None:
        """Uploads a file that is to be read from its start, replacing what is there."""

    def exists(self, path: str) -> bool:
        return self.state(path) is not None

    def match(self, pattern: str) -> list[FileMetadata]:
        """Lists what Beam's `FileSystem.match` would, without the times of changes."""
        if pattern.endswith("/"):
            pattern += "*"
        prefix = literal_prefix(pattern)
        if prefix == pattern:
            state = self.state(pattern)
            return [FileMetadata(pattern, state.size_bytes)] if state else []
        found = [FileMetadata(path, size_bytes) for path, size_bytes in self._sizes(prefix)]
        return list(FileSystems.get_filesystem(pattern).match_files(found, pattern))

    def list_below(self, directory: str) -> list[str]:
        return [path for path, _ in self._sizes(directory.rstrip("/") + "/")]

    @abstractmethod
    def _sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yields path and size in bytes of each object whose path begins with `prefix`."""


def batches(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Splits a sequence into batches of `size`; the last may be smaller."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def for_each(do: Callable[[T], object], items: Iterable[T]) -> None:
    """Calls a function for each item, some at a time; after an error no more calls are begun."""
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        list(pool.map(do, items))


def check_results(done: str, results: Iterable[tuple[Any, ...]]) -> None:
    """Raises the first error of (path, ..., error or None)."""
    for path, *_, error in results:
        if error is not None:
            raise OSError(f"{path} could not be {done}: {error!r}")
