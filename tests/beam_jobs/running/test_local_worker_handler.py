"""Jobs whose workers fail before their first answer: each ends with one sentence."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")
import grpc

from beam_jobs.build import main
from beam_jobs.errors import NO_THREAD, WORKER_CANT_START, WORKER_FAILED, WORKER_KILLED
from beam_jobs.running import launch, local_worker_handler
from beam_jobs.running.local_workers import LocalWorkers

ADVICE = "raise the limits of processes and memory, or set fewer --workers"


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """No process is started; True for each time that all workers are ended."""
    calls: list[bool] = []
    monkeypatch.setattr(LocalWorkers, "server", lambda: None)
    monkeypatch.setattr(LocalWorkers, "close", lambda: calls.append(True))
    return calls


def worker_that_raises(error: BaseException) -> type:
    class Worker:
        def __init__(self, variables: Any) -> None: ...

        def wait(self, timeout_s: float | None = None) -> None:
            raise error

    return Worker


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        pytest.param(TimeoutError(), (WORKER_CANT_START, ADVICE), id="never_answers"),
        pytest.param(RuntimeError(WORKER_CANT_START), (WORKER_CANT_START, ADVICE), id="no_thread"),
        pytest.param(RuntimeError(WORKER_KILLED), (WORKER_KILLED,), id="killed"),
        pytest.param(
            RuntimeError(f"{WORKER_FAILED} 1"), (f"{WORKER_FAILED} 1", "lines above"), id="failed"
        ),
    ],
)
def test_a_worker_that_ends_or_is_silent_before_its_first_answer(
    error: BaseException,
    parts: tuple[str, ...],
    ended: list[bool],
    table: Path,
    build: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(local_worker_handler, "LocalWorker", worker_that_raises(error))
    assert build(table, tmp_path / "out", "--workers=2") == 1
    assert ended, "the other workers go on"
    (sentence,) = (s for s in capsys.readouterr().err.splitlines() if s.startswith("error: "))
    for part in parts:
        assert part in sentence


def test_a_stream_that_breaks_as_the_worker_ends_is_no_failure(
    table: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def broken() -> Iterator[Any]:
        raise grpc.RpcError
        yield

    def wait(handler: local_worker_handler.LocalWorkerHandler) -> None:
        handler._closing.wait()
        handler._worker.wait()
        handler.data_conn._read_inputs(broken())

    monkeypatch.undo()  # real workers
    monkeypatch.setattr(local_worker_handler.LocalWorkerHandler, "_wait", wait)
    command = ["--quiet", "--workers=2", f"--input={table}", f"--output={tmp_path / 'out'}"]
    assert main(command) == 0
    assert capfd.readouterr().err == ""


def start_of_worker(*_: object) -> None:
    raise RuntimeError(NO_THREAD)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        pytest.param(launch, "check_threads", id="of_the_job"),
        pytest.param(local_worker_handler, "LocalWorker", id="of_the_start_of_a_worker"),
        pytest.param(local_worker_handler.LocalWorkerHandler, "_watch", id="of_the_runner"),
    ],
)
def test_a_thread_that_cannot_start_in_the_launching_process(
    owner: object,
    name: str,
    table: Path,
    build: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(local_worker_handler, "LocalWorker", worker_that_raises(TimeoutError()))
    monkeypatch.setattr(owner, name, start_of_worker)
    if name == "_watch":  # what runs in the thread is of no account: it does not start

        def start(thread: threading.Thread) -> None:
            if getattr(thread, "_target", None) is start_of_worker:
                raise RuntimeError(NO_THREAD)
            START(thread)

        monkeypatch.setattr(threading.Thread, "start", start)
        monkeypatch.setattr(owner, name, property(lambda _: start_of_worker))
    assert build(table, tmp_path / "out", "--workers=2") == 1
    errors = capsys.readouterr().err
    assert f"error: {NO_THREAD}: {ADVICE}" in errors
    assert "Traceback" not in errors


START = threading.Thread.start
