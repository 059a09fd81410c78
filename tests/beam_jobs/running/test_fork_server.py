"""Workers that are forked: they begin, end and die as processes of their own would."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("psutil")

import grpc
import psutil
from apache_beam.portability.api import (
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
)

from beam_jobs.running import fork_server, sdk_worker
from beam_jobs.running.versions import versions

ROOT = Path(__file__).parents[3]


class Engine(
    beam_provision_api_pb2_grpc.ProvisionServiceServicer,
    beam_fn_api_pb2_grpc.BeamFnControlServicer,
    beam_fn_api_pb2_grpc.BeamFnLoggingServicer,
):
    """An engine's services, whose workers have nothing to do until they are let go."""

    def __init__(self) -> None:
        self.address = ""
        self.connected: list[Any] = []
        self.let_go = threading.Event()

    def GetProvisionInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        info = beam_provision_api_pb2.ProvisionInfo()
        info.control_endpoint.url = info.logging_endpoint.url = self.address
        return beam_provision_api_pb2.GetProvisionInfoResponse(info=info)

    def Control(self, requests: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        self.connected.append(dict(context.invocation_metadata())["worker_id"])
        self.let_go.wait()
        return iter(())

    def Logging(self, requests: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        self.let_go.wait()
        return iter(())


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Folder of the sockets, whose fork servers are killed at the end."""
    with tempfile.TemporaryDirectory() as name:  # pytest's are too long for a socket's path
        yield Path(name)
        for server in servers(Path(name)):
            server.kill()


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    server = grpc.server(ThreadPoolExecutor(8))
    beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server(engine, server)
    beam_fn_api_pb2_grpc.add_BeamFnControlServicer_to_server(engine, server)
    beam_fn_api_pb2_grpc.add_BeamFnLoggingServicer_to_server(engine, server)
    engine.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield engine
    engine.let_go.set()
    server.stop(None)


def servers(folder: Path) -> list[Any]:
    """Fork servers whose socket lies in a folder; the workers that they forked look alike."""
    alike = [
        process
        for process in psutil.process_iter()
        if any(f"{folder}/" in argument for argument in command_line(process))
    ]
    numbers = {process.pid for process in alike}
    return [process for process in alike if process.ppid() not in numbers]


def command_line(process: Any) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def start(
    folder: Path, address: str, name: str, *others: str, **variables: str
) -> subprocess.Popen[str]:
    # pytest's own variable differs from test to test, and so would the fork server.
    environment = {key: os.environ[key] for key in os.environ if key != "PYTEST_CURRENT_TEST"}
    program = [sys.executable, "-m", "beam_jobs.running.sdk_worker"]
    return subprocess.Popen(
        [*program, f"--id={name}", f"--provision_endpoint={address}", "--unknown_to_us=x", *others],
        cwd=ROOT,
        env=environment | {"TMPDIR": str(folder)} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def await_that(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.05)


def workers(folder: Path) -> list[Any]:
    return [child for server in servers(folder) for child in server.children()]


@pytest.mark.slow
def test_workers_are_forked_from_one_server(folder: Path, engine: Engine) -> None:
    asked = [start(folder, engine.address, name) for name in ("1-1", "1-2")]
    await_that(lambda: len(engine.connected) == 2)
    assert sorted(engine.connected) == ["1-1", "1-2"]
    [server] = servers(folder)
    assert len(server.children()) == 2
    engine.let_go.set()
    assert [process.wait(timeout=60) for process in asked] == [0, 0]
    await_that(lambda: not workers(folder))
    assert server.is_running()


@pytest.mark.slow
def test_a_worker_ends_with_the_one_that_asked_for_it(folder: Path, engine: Engine) -> None:
    asked = start(folder, engine.address, "1-1")
    await_that(lambda: bool(engine.connected))
    [worker] = workers(folder)
    asked.kill()
    await_that(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.slow
def test_a_killed_worker_is_noticed(folder: Path, engine: Engine) -> None:
    asked = start(folder, engine.address, "1-1")
    await_that(lambda: bool(engine.connected))
    [worker] = workers(folder)
    worker.send_signal(signal.SIGKILL)
    assert asked.wait(timeout=60) == 1


@pytest.mark.slow
def test_a_killed_server_is_replaced(folder: Path, engine: Engine) -> None:
    for name in ("1-1", "1-2"):
        asked = start(folder, engine.address, name)
        await_that(lambda name=name: name in engine.connected)
        [server] = servers(folder)
        asked.kill()
        await_that(lambda: not workers(folder))
        server.kill()
        server.wait(timeout=60)


@pytest.mark.slow
def test_a_worker_of_other_versions_ends(folder: Path, engine: Engine) -> None:
    other = versions().replace("tillroll", "tillroll 9.")
    asked = start(folder, engine.address, "1-1", TILLROLL_VERSIONS=other)
    said, _ = asked.communicate(timeout=120)
    assert asked.returncode == 1
    assert f"has {versions()}, and the command that started the job has {other}: install" in said
    assert not engine.connected
    same = start(folder, engine.address, "1-2", TILLROLL_VERSIONS=versions())
    await_that(lambda: engine.connected == ["1-2"])
    engine.let_go.set()
    assert same.wait(timeout=60) == 0


@pytest.mark.slow
def test_what_a_worker_prints_comes_where_it_was_asked_for(folder: Path) -> None:
    asked = start(folder, "127.0.0.1:1", "1-1", "--id")
    said, _ = asked.communicate(timeout=120)
    assert asked.returncode == 1
    assert "tillroll-sdk-worker: error: argument --id: expected one argument" in said


def test_a_server_that_is_idle_ends(folder: Path) -> None:
    path = folder / "idle.socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with socket.socket(socket.AF_UNIX) as asking:  # and goes away
            asking.connect(str(path))
        fork_server.serve(listener, path, idle_s=0)
    assert not path.exists()


def test_a_folder_of_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"tillroll-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match=f"^{folder} must be a folder of user"):
        sdk_worker.main(["--id=1-1", "--provision_endpoint=127.0.0.1:1"])
