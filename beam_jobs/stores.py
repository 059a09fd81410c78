"""Object stores through the clients of Beam's file systems, without the faults of these.

Beam makes a new client for every file that it opens, which takes S3's 0.2 s of processor time and
may ask for credentials. Here a process has one client of each store.
"""

import copy
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

from apache_beam.io.aws.s3io import S3IO
from apache_beam.io.azure.blobstorageio import parse_azfs_path
from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems

_PARALLEL_REQUESTS = 16
_POLL_S = 0.2


class Store:
    """A file system as Beam has it; paths are Beam's."""

    def open(self, path: str, *, buffer_bytes: int) -> BinaryIO:
        """Opens a file whose reader fetches this much at least, or has a `raw` that does not."""
        return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)

    def create(self, path: str) -> BinaryIO:
        """Opens a file for writing, which is there when it is closed."""
        return FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED)

    def exists(self, path: str) -> bool:
        """Whether there is a file, or on a file system with folders a folder, of this name."""
        return bool(FileSystems.exists(path))

    def match(self, pattern: str) -> list[FileMetadata]:
        """Metadata of the files that match a glob pattern.

        Raises:
          BeamIOError: among others, where there is no file of a name without a wildcard.
        """
        return list(FileSystems.match([pattern])[0].metadata_list)

    def delete(self, paths: list[str]) -> None:
        """Deletes files and folders; in an object store, one that is gone already is no error."""
        FileSystems.delete(paths)

    def move(self, pairs: list[tuple[str, str]]) -> None:
        """Moves files within the store, replacing what is there."""
        self.make_folders(pairs)
        FileSystems.rename(*map(list, zip(*pairs, strict=True)))

    def make_folders(self, pairs: list[tuple[str, str]]) -> None:
        """Makes the folders that files are to be moved to."""
        for folder in {FileSystems.split(target)[0] for _, target in pairs}:
            if not self.exists(folder):
                FileSystems.mkdirs(folder)


class S3(Store):
    """`s3://`."""

    def __init__(self) -> None:
        self._client = S3IO(options=FileSystems.get_filesystem("s3://")._options).client

    def open(self, path: str, *, buffer_bytes: int) -> BinaryIO:
        return self._io().open(path, "rb", read_buffer_size=max(buffer_bytes, 1))

    def create(self, path: str) -> BinaryIO:
        """S3 accepts no upload without a part, so an empty file gets an empty one."""
        file = self._io().open(path, "wb")
        uploader = file.raw._uploader
        finish = uploader.finish

        def finish_with_a_part() -> None:
            if not uploader.parts and not uploader.buffer:
                uploader._write_to_s3(b"")
            finish()

        uploader.finish = finish_with_a_part
        return file

    def exists(self, path: str) -> bool:
        return bool(self._io().exists(path))

    def delete(self, paths: list[str]) -> None:
        _check("deleted", self._io().delete_files(paths))

    def move(self, pairs: list[tuple[str, str]]) -> None:
        """Beam copies one file after the other."""
        _for_each(lambda pair: _check("moved", self._io().rename_files([pair])), pairs)

    def _io(self) -> S3IO:
        return S3IO(client=copy.copy(self._client))  # a client remembers where its reader is


class CloudStorage(Store):
    """`gs://`."""

    def __init__(self) -> None:
        self._io = FileSystems.get_filesystem("gs://")._gcsIO()

    def open(self, path: str, *, buffer_bytes: int) -> BinaryIO:
        return self._io.open(path, "rb", read_buffer_size=buffer_bytes)

    def create(self, path: str) -> BinaryIO:
        return self._io.open(path, "wb")

    def exists(self, path: str) -> bool:
        return bool(self._io.exists(path))

    def delete(self, paths: list[str]) -> None:
        """Beam takes each path for a pattern, and sends each in a batch of its own."""
        _check("deleted", self._io.delete_batch(paths))

    def move(self, pairs: list[tuple[str, str]]) -> None:
        _check("moved", self._io.copy_batch(pairs))
        self.delete([source for source, _ in pairs])


class BlobStorage(Store):
    """`azfs://`."""

    def __init__(self) -> None:
        self._io = FileSystems.get_filesystem("azfs://")._blobstorageIO()

    def open(self, path: str, *, buffer_bytes: int) -> BinaryIO:
        return self._io.open(path, "rb", read_buffer_size=max(buffer_bytes, 1))

    def create(self, path: str) -> BinaryIO:
        return self._io.open(path, "wb")

    def exists(self, path: str) -> bool:
        """Beam raises an error where there is no file."""
        return bool(self._blob(path).exists())

    def delete(self, paths: list[str]) -> None:
        """Beam calls it an error that a blob is gone already."""
        _for_each(self._io.delete, paths)

    def move(self, pairs: list[tuple[str, str]]) -> None:
        """Beam copies from blob.core.windows.net, whatever the endpoint, and awaits no copy."""
        _for_each(self._move, pairs)

    def _move(self, pair: tuple[str, str]) -> None:
        source, target = (self._blob(path) for path in pair)
        status = target.start_copy_from_url(source.url)["copy_status"]
        while status == "pending":
            time.sleep(_POLL_S)
            status = target.get_blob_properties().copy.status
        if status != "success":
            raise OSError(f"{pair[0]} could not be copied to {pair[1]}: {status}")
        self._io.delete(pair[0])

    def _blob(self, path: str) -> Any:
        return self._io.client.get_blob_client(*parse_azfs_path(path))


def _for_each(do: Any, items: Iterable[Any]) -> None:
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        list(pool.map(do, items))


def _check(done: str, results: Iterable[tuple[Any, ...]]) -> None:
    """Raises the first error of (path, ..., error or None)."""
    for path, *_, error in results:
        if error is not None:
            raise OSError(f"{path} could not be {done}: {error!r}")
