"""Requests that a reader of an object store has under way, on a server that counts them."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("tensorflow_io")

from tests.support.dataset_factory import write_dataset
from tests.support.processes import ROOT

RECORDS = 64
CONNECTIONS = 25  # of tensorflow-io to S3


class CountingServer(ThreadingHTTPServer):
    """Serves files as S3 does, and keeps requests for their bytes until `awaited` are under way."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, directory: Path, awaited: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.directory, self.awaited = directory, awaited
        self.under_way = self.most = 0
        self.lock = threading.Lock()
        self.reached = threading.Event()

    def enter(self) -> None:
        with self.lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        if self.under_way < self.awaited:
            self.reached.wait(60)
        elif not self.reached.is_set():
            self.reached.wait(1)  # a chance for one more to come
            self.reached.set()

    def leave(self) -> None:
        with self.lock:
            self.under_way -= 1


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CountingServer

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self.server.enter()
        self._answer()
        self.server.leave()

    def log_message(self, *args: object) -> None:
        """Says nothing."""

    def _answer(self) -> None:
        data = (self.server.directory / self.path.rpartition("/")[2]).read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        part = data[int(asked[1]) : int(asked[2]) + 1] if asked else data
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(part)))
        if asked:
            end = int(asked[1]) + len(part) - 1
            self.send_header("Content-Range", f"bytes {asked[1]}-{end}/{len(data)}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(part)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data") / "receipts", counts={"a": RECORDS})


@pytest.fixture
def server(directory: Path, request: pytest.FixtureRequest) -> Iterator[CountingServer]:
    server = CountingServer(directory, request.param)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("parallel_reads", "server"),
    [
        (1, 1),
        (2, 3 * 2),  # TensorFlow opens twice as many ahead
        (32, CONNECTIONS),
    ],
    indirect=["server"],
)
def test_requests_under_way(parallel_reads: int, server: CountingServer, directory: Path):
    environment = {
        "S3_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.block_reader", str(directory), str(parallel_reads)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == f"{RECORDS}\n", done.stderr[-4000:]
    assert server.most == server.awaited
