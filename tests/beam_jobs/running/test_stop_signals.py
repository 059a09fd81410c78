"""Stop signals end the block once, and leave the handlers as they were."""

import os
import signal
import threading

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.running.stop_signals import StopSignals
from beam_jobs.running.thread_failures import ThreadFailures


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
    with ThreadFailures() as failures:
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
    assert threading.excepthook is before
    assert failures.messages == ["a thread failed"]
    assert capsys.readouterr().err == ""
    failures.show()
    assert "RuntimeError: a thread failed" in capsys.readouterr().err
