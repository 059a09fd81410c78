"""S3, through the boto3 client that Beam makes."""

import re
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, BinaryIO, Self, cast

from apache_beam.io.aws.s3io import S3IO, parse_s3_path
from apache_beam.io.filesystems import FileSystems

from beam_jobs.storage.object_stores import (
    FileState,
    ObjectStore,
    batches,
    for_each,
    http_status,
)

_DELETIONS_PER_REQUEST = 1000
_BUCKET_NAME = re.compile(r"[a-zA-Z0-9._-]{1,255}|arn:.+")


def _client() -> Any:
    """Makes a boto3 client with the job's options, which Beam's file system keeps to itself."""
    # Private, as all that this package reaches Beam's clients by: Beam hands the job's options,
    # such as the endpoint and credentials, to its file systems and to nobody else.
    # `test_beam_internals` names what a newer Beam lacks.
    options = FileSystems.get_filesystem("s3://")._options
    return S3IO(options=options).client.client


class S3(ObjectStore):
    """`s3://`, without Beam's own client, which tries for ten minutes what the store refuses."""

    def __init__(self) -> None:
        self._client = _client()

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

    def _sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        bucket, start = _parse_s3(prefix, object_optional=True)
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=start)
        for page in pages:
            for object_ in page.get("Contents", ()):
                yield f"s3://{bucket}/{object_['Key']}", object_["Size"]

    def entries(self, folder: str) -> Iterator[str]:
        bucket, prefix = parse_s3_path(folder, object_optional=True)
        pages = self._client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=bucket, Prefix=prefix, Delimiter="/"):
            for subfolder in page.get("CommonPrefixes", ()):
                yield f"s3://{bucket}/{subfolder['Prefix']}"
            for object_ in page.get("Contents", ()):
                yield f"s3://{bucket}/{object_['Key']}"

    def delete(self, paths: list[str]) -> None:
        for_each(self._delete, batches(paths, _DELETIONS_PER_REQUEST))

    def _delete(self, paths: Sequence[str]) -> None:
        # A request deletes in one bucket only.
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
        """Reads so many bytes, fewer only at the end of the object."""
        # Both ends of HTTP's ranges are part of them: bytes=0-9 are ten.
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


def _parse_s3(path: str, *, object_optional: bool = False) -> tuple[str, str]:
    """Returns bucket and key; of an impossible name, boto3's error would seem to be the store's."""
    bucket, key = parse_s3_path(path, object_optional=object_optional)
    if not _BUCKET_NAME.fullmatch(bucket):
        raise ValueError(f"no bucket of S3 can have the name {bucket!r}")
    return bucket, key
