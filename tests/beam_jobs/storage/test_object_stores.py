"""Numbers of requests that a store gets, in all and at a time."""

import threading
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from apache_beam.io.filesystems import FileSystems

from beam_jobs.storage import hdfs
from beam_jobs.storage.blob_storage import BlobStorage
from beam_jobs.storage.cloud_storage import CloudStorage
from beam_jobs.storage.hdfs import Hdfs
from beam_jobs.storage.s3 import S3

_TIMEOUT_S = 30


class Client:
    """Takes deletions and moves for any client, and answers once two are under way."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._two = threading.Barrier(2, timeout=_TIMEOUT_S)

    def _take(self, size: int) -> None:
        self.sizes.append(size)
        self._two.wait()

    def delete_objects(self, *, Bucket: str, Delete: dict[str, Any]) -> dict[str, Any]:  # noqa: N803
        self._take(len(Delete["Objects"]))
        return {}

    def delete_batch(self, paths: list[str]) -> list[tuple[str, None]]:
        if paths:
            self._take(len(paths))
        return [(path, None) for path in paths]

    def delete(self, path: str) -> None:
        self._take(1)

    def copy_batch(self, pairs: list[tuple[str, str]]) -> list[tuple[str, str, int]]:
        self._take(len(pairs))
        return [(source, target, 503) for source, target in pairs]


@pytest.mark.parametrize(
    ("kind", "paths", "sizes"),
    [(S3, 1001, [1, 1000]), (CloudStorage, 350, [50, 100, 100, 100]), (BlobStorage, 4, [1] * 4)],
)
def test_deletions_go_out_in_batches_and_some_at_a_time(
    kind: type[S3 | CloudStorage | BlobStorage], paths: int, sizes: list[int]
) -> None:
    client = Client()
    store = object.__new__(kind)
    store.__dict__.update(_client=client, _io=client)
    store.delete([f"s3://bucket/{number}" for number in range(paths)])
    assert sorted(client.sizes) == sizes


def test_cloud_storage_deletes_nothing_that_it_could_not_copy() -> None:
    client = Client()
    store = object.__new__(CloudStorage)
    store.__dict__.update(_io=client)
    with pytest.raises(OSError, match="gs://bucket/0 could not be moved: 503"):
        store.move([(f"gs://bucket/{number}", f"gs://bucket/to/{number}") for number in range(40)])
    assert client.sizes == [20, 20]


def test_hdfs_deletes_and_moves_some_files_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    monkeypatch.setattr(FileSystems, "delete", lambda paths: client.delete_batch(paths))
    monkeypatch.setattr(hdfs, "_rename", lambda *pair: client.copy_batch([pair]))
    monkeypatch.setattr(Hdfs, "make_folders", lambda self, pairs: None)
    Hdfs().delete(["hdfs://f/1", "hdfs://f/2"])
    Hdfs().move([("hdfs://f/1", "hdfs://g/1"), ("hdfs://f/2", "hdfs://g/2")])
    assert client.sizes == [1] * 4


@pytest.mark.parametrize("path", ["s3://two words/a.jpg", "s3://läden/a.jpg", "s3://bucket"])
def test_a_name_that_no_bucket_can_have_is_the_fault_of_its_row(path: str) -> None:
    store = object.__new__(S3)
    store.__dict__.update(_client=None)
    with pytest.raises(ValueError, match=r"no bucket of S3 can have the name|must be in the form"):
        store.open(path, buffer_bytes=1)
    with pytest.raises(ValueError, match=r"no bucket of S3 can have the name|must be in the form"):
        store.state(path)
