"""Azure Blob Storage, through Beam's own client."""

import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, BinaryIO

from apache_beam.io.azure.blobstorageio import parse_azfs_path
from apache_beam.io.filesystems import FileSystems

from beam_jobs.storage.object_stores import (
    FileState,
    ObjectStore,
    for_each,
    http_status,
)

_POLL_S = 0.2


def _client() -> Any:
    """Makes Beam's BlobStorageIO with the job's options."""
    # Private: only `_blobstorageIO` makes a client of the job's options.
    return FileSystems.get_filesystem("azfs://")._blobstorageIO()


class BlobStorage(ObjectStore):
    """`azfs://`."""

    def __init__(self) -> None:
        self._io = _client()

    def open(self, path: str, *, buffer_bytes: int) -> BinaryIO:
        return self._io.open(path, "rb", read_buffer_size=max(buffer_bytes, 1))

    def _upload(self, file: BinaryIO, size_bytes: int, path: str) -> None:
        self._blob(path).upload_blob(file, length=size_bytes, overwrite=True)

    def state(self, path: str) -> FileState | None:
        try:
            properties = self._blob(path).get_blob_properties()
        except Exception as error:  # Azure's own class of errors is there only with its client
            if http_status(error) == HTTPStatus.NOT_FOUND:
                return None
            raise
        return FileState(size_bytes=properties.size, version=properties.etag)

    def _sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        yield from self._io.list_files(prefix)

    def entries(self, folder: str) -> Iterator[str]:
        account, container, prefix = parse_azfs_path(folder, blob_optional=True, get_account=True)
        client = self._io.client.get_container_client(container)
        for entry in client.walk_blobs(name_starts_with=prefix, delimiter="/"):
            yield f"azfs://{account}/{container}/{entry.name}"

    def delete(self, paths: list[str]) -> None:
        """Beam calls it an error that a blob is gone already."""
        for_each(self._io.delete, paths)

    def move(self, pairs: list[tuple[str, str]]) -> None:
        """Beam copies from blob.core.windows.net, whatever the endpoint, and awaits no copy."""
        for_each(self._move, pairs)

    def _move(self, pair: tuple[str, str]) -> None:
        source, target = (self._blob(path) for path in pair)
        try:
            # The service copies by itself and may answer before it has: a source that was deleted
            # then would be lost.
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
