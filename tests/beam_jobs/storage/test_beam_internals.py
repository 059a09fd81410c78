"""Private attributes of Beam and its clients that the stores use, named if one is missing."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

beam = pytest.importorskip("apache_beam")


def _s3() -> Any:
    from apache_beam.io.aws.s3filesystem import S3FileSystem

    return S3FileSystem(beam.options.pipeline_options.PipelineOptions([]))


def _cloud_storage() -> Any:
    return pytest.importorskip("apache_beam.io.gcp.gcsfilesystem").GCSFileSystem


def _cloud_storage_io() -> Any:
    gcsio = pytest.importorskip("apache_beam.io.gcp.gcsio")
    return gcsio.GcsIO(mock.Mock())


def _blob_storage() -> Any:
    return pytest.importorskip("apache_beam.io.azure.blobstoragefilesystem").BlobStorageFileSystem


def _hdfs() -> Any:
    pytest.importorskip("hdfs")
    from apache_beam.io.hadoopfilesystem import HadoopFileSystem

    arguments = ["--hdfs_host=127.0.0.1", "--hdfs_port=1", "--hdfs_user=user"]
    return HadoopFileSystem(beam.options.pipeline_options.PipelineOptions(arguments))


def _hdfs_client() -> Any:
    return pytest.importorskip("hdfs").InsecureClient


@pytest.mark.parametrize(
    ("module", "owner", "attribute"),
    [
        ("s3", _s3, "_options"),
        ("cloud_storage", _cloud_storage, "_gcsIO"),
        ("cloud_storage", _cloud_storage_io, "_storage_client_retry"),
        ("blob_storage", _blob_storage, "_blobstorageIO"),
        ("hdfs", _hdfs, "_hdfs_client"),
        ("hdfs", _hdfs, "_parse_url"),
        ("hdfs", _hdfs_client, "_rename"),
    ],
)
def test_attribute_is_there(module: str, owner: Callable[[], Any], attribute: str):
    found = owner()
    name = getattr(found, "__name__", type(found).__name__)
    assert hasattr(found, attribute), (
        f"Beam {beam.__version__} or its client has no {name}.{attribute} any more: "
        f"beam_jobs.storage.{module} reaches its store by it"
    )
