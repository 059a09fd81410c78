"""Azure's Blob Storage in what Azurite can't be told to do, on a server of the tests."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from apache_beam.io.filesystems import FileSystems

from beam_jobs.build import main
from beam_jobs.errors import BuildError
from beam_jobs.running.runner import beam_options
from beam_jobs.storage import files
from schemas.file_names import COMPLETED
from tests.support.blob_server import ACCOUNT, PAGE, BlobServer
from tests.support.receipts import contents
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


@pytest.fixture
def token(server: BlobServer) -> str:
    """Option with which a command, and this process, has a shared access signature for a key."""
    endpoint = f"http://127.0.0.1:{server.server_port}/{ACCOUNT}"
    signature = "sv=2021-08-06&sr=c&sp=rl&se=2026-11-28T10:00:00Z&sig=abc"
    option = f"--azure_connection_string=BlobEndpoint={endpoint};SharedAccessSignature={signature}"
    files.store_of.cache_clear()
    FileSystems.set_options(beam_options([option]))
    return option


def test_an_expired_token_is_no_fault_of_the_file(store: TestStore, server: BlobServer, token: str):
    path = files.join(store.root, "file")
    files.write(path, b"bytes")
    assert files.read(path) == b"bytes"
    server.expired = True
    with pytest.raises(BuildError, match=r"its store refused the credentials: .*; renew them and"):
        files.read(path)


def test_a_token_that_expires_ends_the_build(
    store: TestStore,
    server: BlobServer,
    token: str,
    table: Path,
    dataset: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    folder = files.join(store.root, "in")
    for name, data in contents(table.parent).items():
        files.write(files.join(folder, name), data)
    server.last_name = "in/images/alpha-3.jpg"
    source, output = files.join(folder, table.name), tmp_path / "out"
    options = ["--shards=4", "--label=total:float", "--label=language:category"]
    options += ["--max-bad-fraction=1", "--workers=1", "--quiet", token]
    command = ["--input", source, "--output", str(output), *options]
    assert main(command) == 1
    sentence = capsys.readouterr().err
    assert re.search(
        r"^error: azfs://\S+ could not be read, its store refused the credentials: "
        r".*AuthenticationFailed.*; renew them and run the same command again$",
        sentence,
        re.MULTILINE | re.DOTALL,
    ), sentence
    assert not (output / COMPLETED).exists()
    server.last_name, server.expired = None, False
    assert main(command) == 0
    assert contents(output) == contents(dataset)
