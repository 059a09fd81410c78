"""Object stores for tests: a server of each on 127.0.0.1, and the options to reach it."""

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import HTTPServer
from pathlib import Path
from socketserver import BaseServer
from typing import Any
from urllib.parse import quote

import pytest
from apache_beam.io.filesystems import FileSystems

from beam_jobs.running.runner import beam_options
from beam_jobs.storage.files import store_of
from tests.support.blob_server import ACCOUNT, KEY, BlobServer
from tests.support.forked import ROOT
from tests.support.tls_proxy import TlsProxy

# Where `make test` puts Microsoft's own server of Blob Storage.
_AZURITE = shutil.which("azurite", path=ROOT / "build" / "azurite" / "node_modules" / ".bin")


@dataclass(frozen=True, kw_only=True)
class TestStore:
    """A store with one empty bucket.

    Attributes:
      root: the bucket's URL.
      options: what both commands need to reach it.
      tensorflow_root: the bucket's URL as TensorFlow has it.
      environment: variables with which TensorFlow and tensorflow-io reach it.
      sent_bytes: bytes that the server has sent as bodies, where it counts them.
      blob_server: the server itself, where it is ours.
    """

    __test__ = False  # no test itself, whatever its name

    root: str
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    sent_bytes: Callable[[], int] | None = None
    blob_server: BlobServer | None = None

    @property
    def tensorflow_root(self) -> str:
        return self.root.replace("azfs://", "az://")


@contextmanager
def _s3(folder: Path) -> Iterator[TestStore]:
    pytest.importorskip("moto")
    boto3 = pytest.importorskip("boto3")
    options = {
        "s3_access_key_id": "key",
        "s3_secret_access_key": "secret",
        "s3_region_name": "us-east-1",
    }
    with _process(sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p") as port:
        options["s3_endpoint_url"] = f"http://127.0.0.1:{port}"
        boto3.client(
            "s3",
            endpoint_url=options["s3_endpoint_url"],
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        ).create_bucket(Bucket="receipts")
        yield TestStore(
            root="s3://receipts",
            options=tuple(f"--{name}={value}" for name, value in options.items()),
            environment={
                "S3_ENDPOINT": options["s3_endpoint_url"],
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1",
            },
        )


@contextmanager
def _cloud_storage(folder: Path) -> Iterator[TestStore]:
    """Its clients find the server and their credentials in the environment, as anywhere."""
    storage = pytest.importorskip("google.cloud.storage")
    pytest.importorskip("gcp_storage_emulator")
    from apache_beam.internal.gcp.auth import _Credentials
    from gcp_storage_emulator.handlers import objects

    sent: list[int] = []
    server = _cloud_storage_server(sent)
    host = f"http://127.0.0.1:{server.server_port}"
    with _thread(server), pytest.MonkeyPatch.context() as patch:
        credentials = _write_credentials(folder, token_url=f"{host}/token")
        patch.setenv("STORAGE_EMULATOR_HOST", host)
        patch.setenv("GOOGLE_CLOUD_PROJECT", "project")
        patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(credentials))
        patch.setattr(_Credentials, "_credentials_init", False)
        make_resource = _with_quoted_link(objects._make_object_resource)
        patch.setattr(objects, "_make_object_resource", make_resource)
        patch.setattr(objects, "_media_upload", _with_empty_body(objects._media_upload))
        storage.Client().create_bucket("receipts")
        sent.clear()
        proxy = TlsProxy(folder, server.server_port)
        environment = {
            "https_proxy": proxy.address,
            "CURL_CA_BUNDLE": str(proxy.certificate),
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token",
            "GCS_READAHEAD_BUFFER_SIZE_BYTES": "65536",
        }
        with _thread(proxy):
            yield TestStore(
                root="gs://receipts", environment=environment, sent_bytes=lambda: sum(sent)
            )
    patch.setattr(_Credentials, "_credentials_init", False)


def _cloud_storage_server(sent: list[int]) -> HTTPServer:
    """Makes an emulator that gives out tokens too, and notes the sizes of what it sends."""
    from gcp_storage_emulator.server import RequestHandler
    from gcp_storage_emulator.storage import Storage

    class Handler(RequestHandler):
        def do_POST(self) -> None:  # noqa: N802
            if self.path != "/token":
                return super().do_POST()
            self.rfile.read(int(self.headers["Content-Length"]))
            answer = b'{"access_token": "token", "expires_in": 3600, "token_type": "Bearer"}'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def end_headers(self) -> None:
            super().end_headers()
            write = self.wfile.write

            def write_body(data: bytes) -> int:
                sent.append(len(data))
                return write(data)

            self.wfile.write = write_body

        def log_message(self, *args: Any) -> None:
            """Says nothing."""

    class Server(HTTPServer):
        request_queue_size = 64

    class MemoryStorage(Storage):
        def _write_config_to_file(self) -> None:
            """Writes no list of all objects, as it would after each change, for its next start."""

    return Server(("127.0.0.1", 0), partial(Handler, MemoryStorage(use_memory_fs=True)))


def _with_quoted_link(make_resource: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    """The emulator forgets to quote the name in the link, which the client downloads from."""

    def make_quoted(
        base_url: str, bucket: str, name: str, *rest: Any, **more: Any
    ) -> dict[str, Any]:
        made = make_resource(base_url, bucket, name, *rest, **more)
        link = f"{base_url}/download/storage/v1/b/{bucket}/o/{quote(name, safe='')}"
        return made | {"mediaLink": f"{link}?generation={made['generation']}&alt=media"}

    return make_quoted


def _with_empty_body(upload: Callable[..., None]) -> Callable[..., None]:
    """The emulator takes an empty body for none; TensorFlow makes directories of such objects."""

    def upload_any(request: Any, *rest: Any) -> None:
        if request.data is None:
            request._data = b""
        upload(request, *rest)

    return upload_any


def _write_credentials(folder: Path, *, token_url: str) -> Path:
    """Writes a user's credentials, for which the client asks this server for a token."""
    credentials = {
        "type": "external_account_authorized_user",
        "audience": "//iam.googleapis.com/none",  # no pool that Google would be asked about
        "client_id": "client",
        "client_secret": "secret",
        "refresh_token": "token",
        "token_url": token_url,
    }
    file = folder / "credentials.json"
    file.write_text(json.dumps(credentials))
    return file


@contextmanager
def _blob_storage(folder: Path) -> Iterator[TestStore]:
    pytest.importorskip("azure.storage.blob")
    pytest.importorskip("azure.identity")
    server = BlobServer()
    with _thread(server):
        yield _azure_store(
            server.server_port, sent_bytes=lambda: server.sent_bytes, blob_server=server
        )


@contextmanager
def _azurite(folder: Path) -> Iterator[TestStore]:
    pytest.importorskip("azure.storage.blob")
    pytest.importorskip("azure.identity")
    assert _AZURITE is not None
    options = ["--blobHost", "127.0.0.1", "--location", str(folder)]
    # TensorFlow's client ends its process if it uses a connection that the server closes at that
    # moment, which is after 5 idle seconds by default: a busy machine lets them pass.
    # `azurite-blob` takes the option and ignores it, so the server of all three services runs.
    options += ["--blobKeepAliveTimeout", "600", "--queuePort", "0", "--tablePort", "0"]
    options += ["--queueHost", "127.0.0.1", "--tableHost", "127.0.0.1"]
    options += ["--skipApiVersionCheck", "--silent", "--disableTelemetry", "--blobPort"]
    with _process(_AZURITE, *options) as port:
        yield _azure_store(port)


def _azure_store(port: int, **server: Any) -> TestStore:
    from azure.storage.blob import BlobServiceClient

    endpoint = f"127.0.0.1:{port}/{ACCOUNT}"
    connection_string = f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint=http://{endpoint};"
    BlobServiceClient.from_connection_string(connection_string).create_container("receipts")
    return TestStore(
        root=f"azfs://{ACCOUNT}/receipts",
        options=(f"--azure_connection_string={connection_string}",),
        environment={
            "TF_AZURE_STORAGE_KEY": KEY,
            "TF_AZURE_STORAGE_BLOB_ENDPOINT": endpoint,
            "TF_AZURE_STORAGE_USE_HTTP": "1",
        },
        **server,
    )


@contextmanager
def _thread(server: BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def _process(*command: str) -> Iterator[int]:
    """Runs a server whose last argument is its port; yields that once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [*command, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            assert server.poll() is None, f"{command[0]} has died"
            assert time.monotonic() < deadline, f"{command[0]} does not start"
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        server.terminate()
        server.wait(timeout=30)


_STORES = {"s3": _s3, "gs": _cloud_storage, "azfs": _blob_storage, "azurite": _azurite}
# The stores that tests run on; where there is no Azurite, a server of ours takes its place.
STORE_NAMES: Sequence[str] = ("s3", "gs", "azfs" if _AZURITE is None else "azurite")


@contextmanager
def started(name: str, folder: Path) -> Iterator[TestStore]:
    """A store, which this process can reach too.

    Args:
      name: one of `STORE_NAMES`, or "azfs" for the server of ours.
      folder: where it may keep files.
    """
    with _STORES[name](folder) as store:
        store_of.cache_clear()
        FileSystems.set_options(beam_options(store.options))
        yield store
    store_of.cache_clear()
    FileSystems.set_options(beam_options(()))
