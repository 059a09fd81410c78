"""Google Cloud Storage, through Beam's own client."""

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from apache_beam.io.filesystems import FileSystems

from beam_jobs.storage import object_stores
from beam_jobs.storage.object_stores import (
    FileState,
    ObjectStore,
    batches,
    check_results,
    for_each,
)

_DELETIONS_PER_REQUEST = 100
_MOVES_PER_REQUEST = 20


def _client() -> tuple[Any, Any]:
    """Makes Beam's GcsIO with the job's options; returns it and how it tries requests again."""
    # Private: only `_gcsIO` makes a client of the job's options, and the client has to be told with
    # each request how Beam tries it again.
    io = FileSystems.get_filesystem("gs://")._gcsIO()
    return io, io._storage_client_retry


class CloudStorage(ObjectStore):
    """`gs://`."""

    def __init__(self) -> None:
        self._io, self._retry = _client()

    def open(self, path: str, *, buffer_bytes: int) -> BinaryIO:
        return self._io.open(path, "rb", read_buffer_size=buffer_bytes)

    def _upload(self, file: BinaryIO, size_bytes: int, path: str) -> None:
        bucket, name = self._parse(path)
        blob = self._io.client.bucket(bucket).blob(name, chunk_size=object_stores.SPOOL_BYTES)
        blob.upload_from_file(file, size=size_bytes, retry=self._retry)

    def state(self, path: str) -> FileState | None:
        bucket, name = self._parse(path)
        blob = self._io.client.bucket(bucket).get_blob(name, retry=self._retry)
        return FileState(size_bytes=blob.size, version=str(blob.generation)) if blob else None

    def _sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        yield from self._io.list_files(prefix)

    def entries(self, folder: str) -> Iterator[str]:
        bucket, prefix = self._parse(folder, object_optional=True)
        pages = self._io.client.list_blobs(bucket, prefix=prefix, delimiter="/").pages
        for page in pages:
            for name in page.prefixes:
                yield f"gs://{bucket}/{name}"
            for blob in page:
                yield f"gs://{bucket}/{blob.name}"

    def delete(self, paths: list[str]) -> None:
        """Beam takes each path for a pattern, and sends each in a batch of its own."""
        for_each(self._delete, batches(paths, _DELETIONS_PER_REQUEST))

    def _delete(self, paths: Sequence[str]) -> None:
        check_results("deleted", self._io.delete_batch(list(paths)))

    def move(self, pairs: list[tuple[str, str]]) -> None:
        """Moves small batches, some at a time: what was moved need not be again."""
        for_each(self._move, batches(pairs, _MOVES_PER_REQUEST))

    def _move(self, pairs: Sequence[tuple[str, str]]) -> None:
        # There is no rename: of those that could be copied, the source is deleted. A build that is
        # killed in between copies the others again.
        copied = self._io.copy_batch(list(pairs))
        self._delete([source for source, _, error in copied if error is None])
        check_results("moved", copied)

    def _parse(self, path: str, *, object_optional: bool = False) -> tuple[str, str]:
        from apache_beam.io.gcp.gcsio import parse_gcs_path  # needs Google's client

        return parse_gcs_path(path, object_optional=object_optional)
