"""The end of a forked process, which must never run on in the code of its parent."""

import os
import socket
import sys
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.errors import NO_THREAD
from beam_jobs.running.forked_process import CANT_START, FAILED, run_and_exit
from tests.support.forked import CONTEXT

RUNS_ON = 99


def succeed() -> None:
    print("done")


def lack_a_thread() -> None:
    raise RuntimeError(NO_THREAD)


def lack_memory() -> None:
    raise MemoryError


def fail() -> None:
    raise ZeroDivisionError


def leave() -> None:
    raise SystemExit(0)


def close_output() -> None:
    sys.stdout.close()


def have_no_output() -> None:
    sys.stdout = None  # as where it was closed when Python started


def have_an_odd_output() -> None:
    sys.stdout = object()  # type: ignore[assignment]


def have_no_errors() -> None:
    sys.stderr = None
    raise ZeroDivisionError


def have_odd_errors() -> None:
    sys.stderr = object()  # type: ignore[assignment]
    raise ZeroDivisionError


def _become(work: object, output: str, errors: Path, connection: socket.socket) -> None:
    try:
        for name, path, number, size in (("stdout", output, 1, -1), ("stderr", str(errors), 2, 1)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
            setattr(sys, name, os.fdopen(number, "w", buffering=size))
        run_and_exit(work, connection)  # type: ignore[arg-type]
    finally:
        os._exit(RUNS_ON)


def end_of(
    work: object, output: str, errors: Path, *, has_reader: bool = True
) -> tuple[int, bytes]:
    """Exit status of a forked process, and the status that it has sent."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = CONTEXT.Process(target=_become, args=(work, output, errors, theirs))
            process.start()
            if not has_reader:
                ours.close()
        sent = ours.recv(2) if has_reader else b""
        process.join(60)
    assert process.exitcode is not None
    return process.exitcode, sent


@pytest.mark.parametrize("output", [os.devnull, "/dev/full"])
@pytest.mark.parametrize(
    ("work", "status"),
    [(succeed, 0), (lack_a_thread, CANT_START), (lack_memory, CANT_START), (fail, FAILED)],
)
def test_it_tells_how_it_ended(work: object, status: int, output: str, tmp_path: Path):
    assert end_of(work, output, tmp_path / "errors") == (status, bytes([status]))


@pytest.mark.parametrize(
    ("work", "status"),
    [
        (leave, FAILED),
        (close_output, 0),
        (have_no_output, 0),
        (have_an_odd_output, None),
        (have_no_errors, FAILED),
        (have_odd_errors, None),
    ],
)
@pytest.mark.parametrize("has_reader", [True, False])
def test_it_ends_whatever_is_raised_at_its_end(
    work: object, status: int | None, has_reader: bool, tmp_path: Path
):
    ended, _ = end_of(work, os.devnull, tmp_path / "errors", has_reader=has_reader)
    assert ended != RUNS_ON
    if status is not None:
        assert ended == status


def test_a_failure_is_printed_and_a_lack_of_threads_is_not(tmp_path: Path):
    errors = tmp_path / "errors"
    end_of(fail, os.devnull, errors)
    assert "ZeroDivisionError" in errors.read_text()
    end_of(lack_a_thread, os.devnull, tmp_path / "others")
    assert (tmp_path / "others").read_text() == ""
