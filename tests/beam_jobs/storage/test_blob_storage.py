"""Azure's Blob Storage in what Azurite can't be told to do, on a server of the tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.errors import BuildError
from beam_jobs.storage import files
from tests.support.blob_server import PAGE, BlobServer
from tests.support.stores import TestStore, started

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with started("azfs", tmp_path) as store:
        yield store


@pytest.fixture
def server(store: TestStore) -> BlobServer:
    assert store.blob_server is not None
    return store.blob_server


def test_a_listing_of_several_pages_is_whole(store: TestStore):
    paths = [files.join(store.root, "many", f"{number:02}") for number in range(2 * PAGE + 1)]
    for path in paths:
        files.write(path, b"x")
    assert sorted(files.list_below(files.join(store.root, "many"))) == paths
    assert [each.path for each in files.list_files(files.join(store.root, "many/*"))] == paths


def test_a_range_is_all_that_is_sent(store: TestStore, server: BlobServer):
    path = files.join(store.root, "file")
    files.write(path, bytes(1_000_000))
    before = server.sent_bytes
    assert files.read_range(path, 7, 5000) == bytes(5000)
    assert server.sent_bytes - before <= 5000 + 2000


def test_a_move_awaits_the_copy(store: TestStore, server: BlobServer):
    source, target = (files.join(store.root, name) for name in ("source", "target"))
    files.write(source, b"data")
    server.slow_copies = True
    files.move([(source, target)])
    assert files.list_below(store.root) == [target]
    assert files.read(target) == b"data"


def test_an_expired_token_is_no_fault_of_the_file(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
):
    path = files.join(store.root, "file")
    files.write(path, b"bytes")
    monkeypatch.setattr("tests.support.blob_server.ACCOUNT", "another")
    with pytest.raises(BuildError, match=r"its store refused the credentials: .*; renew them and"):
        files.read(path)
