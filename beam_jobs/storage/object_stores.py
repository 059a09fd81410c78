"""Object stores through the clients of Beam's file systems, without the faults of these.

Beam makes a new client for every file that it opens, which takes S3's 0.2 s of processor time and
may ask for credentials. Here a process has one client of each store.
"""

import re
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, Self, TypeVar, cast

from apache_beam.io.aws.s3io import S3IO, parse_s3_path
from apache_beam.io.azure.blobstorageio import parse_azfs_path
from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems

T = TypeVar("T")
PARALLEL_REQUESTS = 10  # the stores' clients keep no more connections
_SPOOL_BYTES = 1 << 24  # of a file that is written, kept in memory
_S3_BATCH, _CLOUD_STORAGE_BATCH = 1000, 100  # deletions in one request
_MOVES_BATCH = 20
_S3_BUCKET = re.compile(r"[a-zA-Z0-9._-]{1,255}|arn:.+")
_POLL_S = 0.2


def escape(path: str) -> str:
    """Makes a path match itself as a glob pattern."""
    return re.sub(r"([*?[])", r"[\1]", path)


def http_status(error: Exception) -> int | None:
    """The HTTP status that a store's client raised."""
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
        """Opens a file whose reader fetches this much at least, or has a `raw` that does not."""
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
        self.move([(temporary, path)])

    def exists(self, path: str) -> bool:
        """Whether there is a file, or on a file system with folders a folder, of this name."""
        return bool(FileSystems.exists(path))

    def state(self, path: str) -> FileState | None:
        """Size and version of a file; None: there is no such file."""
        if not self.exists(path):
            return None
        metadata = FileSystems.get_filesystem(path).metadata(path)
        return FileState(
            size_bytes=metadata.size_in_bytes, version=str(metadata.last_updated_in_seconds)
        )

    def match(self, pattern: str) -> list[FileMetadata]:
        """Metadata of the files that match a glob pattern.

        Raises:
          BeamIOError: among others, where there is no file of a name without a wildcard.
        """
        return list(FileSystems.match([pattern])[0].metadata_list)

    def list_below(self, directory: str) -> list[str]:
        """Paths of all files below a directory; none if it is not there."""
        pattern = f"{escape(directory.rstrip('/'))}/**"
        return [metadata.path for metadata in self.match(pattern)]

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
        with SpooledTemporaryFile(_SPOOL_BYTES) as spooled:
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


class S3(ObjectStore):
    """`s3://`. Beam's client tries for ten minutes what the store refuses."""

    def __init__(self) -> None:
        self._client = S3IO(options=FileSystems.get_filesystem("s3://")._options).client.client

    def open(self, path: str, *, buffer_bytes: int) -> BinaryIO:
        return cast(BinaryIO, _S3Reader(self._client, path))

    def _upload(self, file: BinaryIO, size_bytes: int, path: str) -> None:
        self._client.upload_fileobj(file, *parse_s3_path(path))

    def state(self, path: str) -> FileState | None:
        bucket, key = _parse_s3(path)
        try:
            head = self._client.head_object(Bucket=bucket, Key=key)
        except Exception as error:  # boto3 makes its errors as they come
            if http_status(error) == HTTPStatus.NOT_FOUND:
                return None
            raise
        return FileState(size_bytes=head["ContentLength"], version=head["ETag"])

    def list_below(self, directory: str) -> list[str]:
        bucket, prefix = parse_s3_path(_prefix(directory), object_optional=True)
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [
            f"s3://{bucket}/{each['Key']}" for page in pages for each in page.get("Contents", [])
        ]

    def delete(self, paths: list[str]) -> None:
        for_each(self._delete, _batches(paths, _S3_BATCH))

    def _delete(self, paths: Sequence[str]) -> None:
        objects: dict[str, list[dict[str, str]]] = {}
        for bucket, key in map(parse_s3_path, paths):
            objects.setdefault(bucket, []).append({"Key": key})
        for bucket, keys in objects.items():
            answer = self._client.delete_objects(Bucket=bucket, Delete={"Objects": keys})
            for error in answer.get("Errors", []):
                raise OSError(f"s3://{bucket}/{error['Key']} could not be deleted: {error}")

    def move(self, pairs: list[tuple[str, str]]) -> None:
        """Moves one object after the other, some at a time: what was moved need not be again."""
        for_each(self._move, pairs)

    def _move(self, pair: tuple[str, str]) -> None:
        (bucket, key), target = map(parse_s3_path, pair)
        try:
            self._client.copy({"Bucket": bucket, "Key": key}, *target)
        except Exception as error:  # boto3 makes its errors as they come
            raise OSError(f"{pair[0]} could not be copied to {pair[1]}: {error!r}") from error
        self._client.delete_object(Bucket=bucket, Key=key)


class _S3Reader:
    """An object of S3; each read is one request."""

    def __init__(self, client: Any, path: str) -> None:
        self._client = client
        self._bucket, self._key = _parse_s3(path)
        self._offset = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""

    def seek(self, offset: int) -> None:
        self._offset = offset

    def read(self, size: int) -> bytes:
        """So many bytes, fewer only at the end."""
        wanted = f"bytes={self._offset}-{self._offset + size - 1}"
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key, Range=wanted)
        except Exception as error:  # boto3 makes its errors as they come
            if http_status(error) == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # behind the end
                return b""
            raise
        with answer["Body"] as body:
            data = bytes(body.read())
        self._offset += len(data)
        return data


def _parse_s3(path: str) -> tuple[str, str]:
    """Bucket and key. For an impossible name boto3's error would seem to be one of the store."""
    bucket, key = parse_s3_path(path)
    if not _S3_BUCKET.fullmatch(bucket):
        raise ValueError(f"no bucket of S3 can have the name {bucket!r}")
    return bucket, key


class CloudStorage(ObjectStore):
    """`gs://`."""

    def __init__(self) -> None:
        self._io = FileSystems.get_filesystem("gs://")._gcsIO()

    def open(self, path: str, *, buffer_bytes: int) -> BinaryIO:
        return self._io.open(path, "rb", read_buffer_size=buffer_bytes)

    def _upload(self, file: BinaryIO, size_bytes: int, path: str) -> None:
        bucket, name = self._parse(path)
        blob = self._io.client.bucket(bucket).blob(name, chunk_size=_SPOOL_BYTES)
        blob.upload_from_file(file, size=size_bytes, retry=self._io._storage_client_retry)

    def state(self, path: str) -> FileState | None:
        bucket, name = self._parse(path)
        retry = self._io._storage_client_retry
        blob = self._io.client.bucket(bucket).get_blob(name, retry=retry)
        return FileState(size_bytes=blob.size, version=str(blob.generation)) if blob else None

    def list_below(self, directory: str) -> list[str]:
        return [path for path, _ in self._io.list_files(_prefix(directory))]

    def delete(self, paths: list[str]) -> None:
        """Beam takes each path for a pattern, and sends each in a batch of its own."""
        for_each(self._delete, _batches(paths, _CLOUD_STORAGE_BATCH))

    def _delete(self, paths: Sequence[str]) -> None:
        _check("deleted", self._io.delete_batch(list(paths)))

    def move(self, pairs: list[tuple[str, str]]) -> None:
        """Moves small batches, some at a time: what was moved need not be again."""
        for_each(self._move, _batches(pairs, _MOVES_BATCH))

    def _move(self, pairs: Sequence[tuple[str, str]]) -> None:
        copied = self._io.copy_batch(list(pairs))
        self._delete([source for source, _, error in copied if error is None])
        _check("moved", copied)

    def _parse(self, path: str) -> tuple[str, str]:
        from apache_beam.io.gcp.gcsio import parse_gcs_path  # needs Google's client

        return parse_gcs_path(path)


class BlobStorage(ObjectStore):
    """`azfs://`."""

    def __init__(self) -> None:
        self._io = FileSystems.get_filesystem("azfs://")._blobstorageIO()

    def open(self, path: str, *, buffer_bytes: int) -> BinaryIO:
        return self._io.open(path, "rb", read_buffer_size=max(buffer_bytes, 1))

    def _upload(self, file: BinaryIO, size_bytes: int, path: str) -> None:
        self._blob(path).upload_blob(file, length=size_bytes, overwrite=True)

    def state(self, path: str) -> FileState | None:
        try:
            found = self._blob(path).get_blob_properties()
        except Exception as error:  # Azure's own class of errors is there only with its client
            if http_status(error) == HTTPStatus.NOT_FOUND:
                return None
            raise
        return FileState(size_bytes=found.size, version=found.etag)

    def list_below(self, directory: str) -> list[str]:
        return [path for path, _ in self._io.list_files(_prefix(directory))]

    def delete(self, paths: list[str]) -> None:
        """Beam calls it an error that a blob is gone already."""
        for_each(self._io.delete, paths)

    def move(self, pairs: list[tuple[str, str]]) -> None:
        """Beam copies from blob.core.windows.net, whatever the endpoint, and awaits no copy."""
        for_each(self._move, pairs)

    def _move(self, pair: tuple[str, str]) -> None:
        source, target = (self._blob(path) for path in pair)
        try:
            status = target.start_copy_from_url(source.url)["copy_status"]
            while status == "pending":
                time.sleep(_POLL_S)
                status = target.get_blob_properties().copy.status
        except Exception as error:  # Azure's own class of errors is there only with its client
            raise OSError(f"{pair[0]} could not be copied to {pair[1]}: {error!r}") from error
        if status != "success":
            raise OSError(f"{pair[0]} could not be copied to {pair[1]}: {status}")
        self._io.delete(pair[0])

    def _blob(self, path: str) -> Any:
        return self._io.client.get_blob_client(*parse_azfs_path(path))


def _prefix(directory: str) -> str:
    return directory.rstrip("/") + "/"


def _batches(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def for_each(do: Callable[[T], object], items: Iterable[T]) -> None:
    """Does it some at a time; after an error no more are begun."""
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        list(pool.map(do, items))


def _check(done: str, results: Iterable[tuple[Any, ...]]) -> None:
    """Raises the first error of (path, ..., error or None)."""
    for path, *_, error in results:
        if error is not None:
            raise OSError(f"{path} could not be {done}: {error!r}")
