"""Workers of this process, in which the server is a program of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("psutil")

import psutil

from beam_jobs.errors import WORKER_KILLED
from beam_jobs.running.local_workers import LocalWorker, LocalWorkers
from tests.support.forked import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def endless() -> Iterator[dict[str, str]]:
    """Variables of a worker that waits for an answer, which does not come."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f'url: "127.0.0.1:{silent.getsockname()[1]}"'
        yield {"CONTROL_API_SERVICE_DESCRIPTOR": url, "WORKER_ID": "1"}


def servers() -> list[Any]:
    return [
        child
        for child in psutil.Process().children()
        if child.cmdline()[1:3] == ["-m", "beam_jobs.running.local_workers"]
    ]


@pytest.fixture(autouse=True)
def _no_server():
    LocalWorkers.close()
    yield
    LocalWorkers.close()


def begun(variables: dict[str, str]) -> tuple[LocalWorker, Any, Any]:
    """A worker that has begun, its server's process and its own."""
    # As long as the server imports Beam, other programs may be its children for a moment.
    with pytest.raises(RuntimeError, match=r"status 1$"):
        LocalWorker({}).wait()
    (server,) = servers()
    before = server.children()
    worker = LocalWorker(variables)
    deadline = time.monotonic() + 60
    while not (new := set(server.children()) - set(before)):
        assert time.monotonic() < deadline, "no worker begins"
        time.sleep(0.01)
    return worker, server, new.pop()


def test_one_server_for_all_workers():
    for _ in range(3):
        with pytest.raises(RuntimeError, match=r"^a worker process ended with status 1$"):
            LocalWorker({}).wait()  # it lacks what Beam needs
    assert len(servers()) == 1


def test_a_killed_worker_is_told(endless: dict[str, str]):
    worker, _, process = begun(endless)
    process.kill()
    with pytest.raises(RuntimeError, match=f"^{WORKER_KILLED}$"):
        worker.wait()


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGSEGV, "Segmentation fault"), (signal.SIGABRT, "Aborted")]
)
def test_a_crashed_worker_is_told(endless: dict[str, str], number: signal.Signals, name: str):
    worker, _, process = begun(endless)
    while process.num_threads() < 3:  # those of gRPC start after all else
        time.sleep(0.01)
    process.send_signal(number)
    with pytest.raises(RuntimeError, match=rf"^a worker process crashed \({name}\)$"):
        worker.wait()


def test_a_worker_killed_before_it_has_read_its_request_is_told(
    endless: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LONG", "x" * 100_000)
    LocalWorkers.server()
    (server,) = servers()
    server.suspend()
    worker = LocalWorker(endless)
    server.kill()
    with pytest.raises(RuntimeError, match=f"^{WORKER_KILLED}$"):
        worker.wait()
    with pytest.raises(RuntimeError, match=r"status 1$"):  # of a new server
        LocalWorker({}).wait()


def test_a_program_may_ignore_how_its_children_end():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        for _ in range(3):  # the server looks which workers have ended
            with pytest.raises(RuntimeError, match=r"status 1$"):
                LocalWorker({}).wait()
        (server,) = servers()
        LocalWorkers.close()
        assert not server.is_running()
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_killed_server_is_started_anew():
    first = LocalWorkers.server()
    assert LocalWorkers.server() is first
    (process,) = servers()
    process.kill()
    process.wait()
    with pytest.raises(RuntimeError, match=r"status 1$"):  # of a new server
        LocalWorker({}).wait()
    assert servers()[0].pid != process.pid


def test_workers_end_with_the_server(endless: dict[str, str]):
    worker, server, child = begun(endless)
    LocalWorkers.close()
    assert not server.is_running()
    assert not child.is_running()
    with pytest.raises(RuntimeError, match=f"^{WORKER_KILLED}$"):
        worker.wait()


def test_a_server_finds_modules_where_this_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path / "passed over, as it is no text"])
    LocalWorkers.server()
    (server,) = servers()
    assert server.environ()["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)


def test_nothing_to_close():
    assert not servers()
    LocalWorkers.close()
    assert not servers()


# A worker that runs MAIN instead of Beam's harness, and prints after it.
WORKER = """
import json, os, socket, sys
from beam_jobs.running import local_workers

ours, theirs = socket.socketpair()
request = json.dumps([os.getcwd(), sys.path, dict(os.environ)])
ours.sendall(f"{request}\\n".encode())
local_workers.sdk_worker_main.main = lambda arguments: MAIN
def work():
    local_workers._be_worker(theirs)
    print("a late traceback", file=sys.stderr)
local_workers.run_and_exit(work, theirs)
"""


@pytest.mark.parametrize(("main", "status"), [("None", 0), ("1 / 0", 1)])
def test_a_worker_prints_why_it_failed_itself_and_nothing_else(main: str, status: int):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WORKER.replace("MAIN", main)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == status
    assert "a late traceback" not in done.stderr
    assert ("ZeroDivisionError: division by zero" in done.stderr) == (status == 1)
