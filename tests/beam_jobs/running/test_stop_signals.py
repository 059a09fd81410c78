"""Stop signals end the block once, and leave the handlers as they were."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.running.stop_signals import StopSignals, stop_signals_held
from beam_jobs.running.thread_failures import ThreadFailures

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def pytest_reports_unraisable_exceptions_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_remembered(number: signal.Signals, status: int) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with StopSignals() as stop:
        assert stop.received is None
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        # Another one ends the process at once.
        assert signal.getsignal(signal.SIGINT) is signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert stop.received is number
    assert stop.exit_status == status
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize(
    ("local", "resumes", "sentence"),
    [
        (True, True, "stopped by SIGTERM; the same command resumes where it stopped"),
        (True, False, "stopped by SIGTERM"),
        (
            False,
            True,
            "stopped by SIGTERM; the job may go on without this process: stop it at its runner; "
            "the same command resumes where it stopped",
        ),
    ],
)
def test_the_sentence_says_what_to_do(local: bool, resumes: bool, sentence: str) -> None:
    stop = StopSignals()
    stop.received = signal.SIGTERM
    assert stop.sentence(local=local, resumes=resumes) == sentence


def test_objects_that_the_signal_left_half_made_are_freed_without_a_word() -> None:
    program = """
import os, signal, sys, zipfile
from io import BytesIO
from beam_jobs.running.stop_signals import StopSignals

class Closed(BytesIO):
    def write(self, data):
        self.close()
        os.kill(os.getpid(), signal.SIGTERM)
        return super().write(data)

with StopSignals() as stop:
    try:
        zipfile.ZipFile(Closed(), "w").writestr("name", b"text")
    except KeyboardInterrupt:
        print("stopped")
"""
    run = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert (run.stdout, run.stderr) == ("stopped\n", "")


def test_other_threads_change_nothing() -> None:
    before = signal.getsignal(signal.SIGTERM)
    handlers = []

    def enter() -> None:
        with StopSignals() as stop:
            handlers.append((signal.getsignal(signal.SIGTERM), stop.received))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert handlers == [(before, None)]


def test_failures_of_threads_are_kept_until_they_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise RuntimeError("a thread failed")

    before = threading.excepthook
    with ThreadFailures(lambda: None) as failures:
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
    assert threading.excepthook is before
    assert failures.messages == ["a thread failed"]
    assert capsys.readouterr().err == ""
    failures.show()
    assert "RuntimeError: a thread failed" in capsys.readouterr().err


def test_held_signals_come_at_the_end_of_the_block() -> None:
    steps = []

    def block() -> None:
        with stop_signals_held():
            os.kill(os.getpid(), signal.SIGTERM)
            steps.append(stop.received)

    with StopSignals() as stop, pytest.raises(KeyboardInterrupt):
        block()
    assert steps == [None]
    assert stop.received is signal.SIGTERM
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def start_verify(dataset: Path) -> subprocess.Popen:
    """Starts verify, and waits until it has started its workers."""
    psutil = pytest.importorskip("psutil")
    process = subprocess.Popen(
        [sys.executable, "-m", "beam_jobs.verify", str(dataset), "--quiet", "--workers=2"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    # Two workers, and Python's own process that counts their semaphores.
    while len(psutil.Process(process.pid).children()) < 3 and process.poll() is None:
        time.sleep(0.005)
    assert process.poll() is None, "the command ended before it had started its workers"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_verify_ends_with_a_sentence_and_its_workers(
    dataset: Path, number: signal.Signals
) -> None:
    process = start_verify(dataset)
    os.killpg(process.pid, number)  # as from a terminal: to the workers, too
    _, error = process.communicate(timeout=60)  # until no worker has its standard error any more
    assert error == f"stopped by {number.name}\n"
    assert process.returncode == 128 + number


def test_workers_of_a_killed_verify_end(dataset: Path) -> None:
    process = start_verify(dataset)
    process.kill()
    try:
        process.communicate(timeout=60)  # until no worker has its standard error any more
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
