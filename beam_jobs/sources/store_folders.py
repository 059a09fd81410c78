"""Folders of object stores and HDFS, listed a level at a time and page by page.

Beam lists all that lies below a folder in one request after the other, and keeps it. Here the
subfolders of an input are listed apart, so that many workers can share them, and no more than a
page is kept.
"""

from collections.abc import Callable, Iterator
from functools import cache
from http import HTTPStatus
from typing import Any

from apache_beam.io.aws.s3io import S3IO, parse_s3_path
from apache_beam.io.azure.blobstorageio import parse_azfs_path
from apache_beam.io.filesystems import FileSystems

from beam_jobs.errors import BuildError
from beam_jobs.storage import hdfs


def files_below(path: str) -> Iterator[str]:
    """Yields the path of every file below a folder, or of a file itself.

    Args:
      path: as `entries` gives it: that of a folder ends in a slash.

    Raises:
      BuildError: a folder can't be listed.
    """
    if not path.endswith("/"):
        yield path
        return
    for entry in entries(path):
        yield from files_below(entry)


def entries(folder: str) -> Iterator[str]:
    """Yields the paths of the files and folders in a folder; those of folders end in a slash.

    A folder that is not there is empty. The empty object that stands for a folder in some stores is
    no entry of it.

    Args:
      folder: ends in a slash.

    Raises:
      BuildError: the folder can't be listed.
    """
    try:
        for entry in _LISTERS[FileSystems.get_scheme(folder)](folder):
            if entry != folder:
                yield entry
    except BuildError:
        raise
    except Exception as error:  # each client raises its own kind of error
        if _status(error) == HTTPStatus.NOT_FOUND:
            return
        raise BuildError(
            f"folder {folder} can't be listed: {error!r}; check that it exists and that its store "
            "lets you list it, and run the same command again"
        ) from error


@cache
def client_of(scheme: str) -> Any:
    """The client of a store, with the job's options."""
    file_system = FileSystems.get_filesystem(f"{scheme}://")
    match scheme:
        case "s3":
            return S3IO(options=file_system._options).client.client
        case "gs":
            return file_system._gcsIO().client
        case _:
            return file_system._blobstorageIO().client


def _s3_entries(folder: str) -> Iterator[str]:
    bucket, prefix = parse_s3_path(folder, object_optional=True)
    pages = client_of("s3").get_paginator("list_objects_v2")
    for page in pages.paginate(Bucket=bucket, Prefix=prefix, Delimiter="/"):
        for found in page.get("CommonPrefixes", ()):
            yield f"s3://{bucket}/{found['Prefix']}"
        for found in page.get("Contents", ()):
            yield f"s3://{bucket}/{found['Key']}"


def _cloud_storage_entries(folder: str) -> Iterator[str]:
    from apache_beam.io.gcp.gcsio import parse_gcs_path  # needs Google's client

    bucket, prefix = parse_gcs_path(folder, object_optional=True)
    pages = client_of("gs").list_blobs(bucket, prefix=prefix, delimiter="/").pages
    for page in pages:
        for name in page.prefixes:
            yield f"gs://{bucket}/{name}"
        for blob in page:
            yield f"gs://{bucket}/{blob.name}"


def _blob_storage_entries(folder: str) -> Iterator[str]:
    account, container, prefix = parse_azfs_path(folder, blob_optional=True, get_account=True)
    client = client_of("azfs").get_container_client(container)
    for found in client.walk_blobs(name_starts_with=prefix, delimiter="/"):
        yield f"azfs://{account}/{container}/{found.name}"


_LISTERS: dict[str | None, Callable[[str], Iterator[str]]] = {
    "s3": _s3_entries,
    "gs": _cloud_storage_entries,
    "azfs": _blob_storage_entries,
    "hdfs": hdfs.entries,
}


def _status(error: Exception) -> int | None:
    """The HTTP status that a client raised."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # of boto3
        return int(response["ResponseMetadata"]["HTTPStatusCode"])
    status = getattr(error, "code", getattr(error, "status_code", None))
    return int(status) if isinstance(status, int) else None
