"""Threads that can't start, and what becomes of the exceptions of threads."""

import threading
from collections.abc import Callable

import pytest

from beam_jobs.errors import NO_THREAD
from beam_jobs.running.thread_failures import ThreadFailures, check_threads


def fail(error: BaseException) -> Callable[[], None]:
    def target() -> None:
        raise error

    return target


def test_threads_that_can_start_are_ended():
    before = threading.active_count()
    check_threads(20)
    assert threading.active_count() == before


@pytest.mark.parametrize("startable", [0, 1, 19])
def test_threads_that_cannot_start_are_told(startable: int, monkeypatch: pytest.MonkeyPatch):
    before = threading.active_count()
    start = threading.Thread.start
    started = []

    def limited(thread: threading.Thread) -> None:
        if len(started) == startable:
            raise RuntimeError(NO_THREAD)
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(RuntimeError, match=f"^{NO_THREAD}$"):
        check_threads(20)
    assert len(started) == startable
    assert threading.active_count() == before


def test_python_says_it_in_these_words():
    # A stack of a terabyte is more than a process can address.
    before = threading.stack_size(1 << 46)
    try:
        with pytest.raises(RuntimeError, match=f"^{NO_THREAD}$"):
            threading.Thread(target=print).start()
    finally:
        threading.stack_size(before)


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (RuntimeError(NO_THREAD), True),
        (MemoryError(), False),
        (BlockingIOError(11, "Resource temporarily unavailable"), False),
        (RuntimeError("Channel closed prematurely."), False),
        (OSError(28, "No space left on device"), False),
    ],
)
def test_workers_end_where_threads_cannot_start(error: BaseException, ends: bool):
    ended: list[bool] = []
    with ThreadFailures(lambda: ended.append(True)) as failures:
        thread = threading.Thread(target=fail(error))
        thread.start()
        thread.join()
    assert failures.messages == [str(error)]
    assert ended == [True] * ends
