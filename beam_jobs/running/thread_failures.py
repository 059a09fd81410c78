"""Threads that can't start, and exceptions of Beam's threads."""

import threading
from collections.abc import Callable
from typing import Self

from beam_jobs.errors import NO_THREAD


def check_threads(count: int) -> None:
    """Starts and ends so many threads.

    gRPC can't be asked instead: where its own threads can't start, it prints a line or hangs.

    Raises:
      RuntimeError: they can't all run at the same time.
    """
    end = threading.Event()
    threads = [threading.Thread(target=end.wait, daemon=True) for _ in range(count)]
    try:
        for thread in threads:
            thread.start()
    finally:
        end.set()
        for thread in threads:
            if thread.ident:
                thread.join()


class ThreadFailures:
    """Keeps the exceptions that end threads within the block, instead of printing tracebacks.

    When a build is stopped or loses a worker process, Beam's threads fail one after the other. The
    command then ends with a sentence; where it has none, `show` prints what was kept.

    A thread of Beam's that the system doesn't let start may be one that serves the workers. They,
    and Beam, would wait for ever for what it would have answered.

    Args:
      end_workers: ends the workers, once the system starts no more threads.
    """

    def __init__(self, end_workers: Callable[[], None]) -> None:
        self._kept: list[threading.ExceptHookArgs] = []
        self._end_workers = end_workers

    @property
    def messages(self) -> list[str]:
        """The exceptions' messages."""
        return [str(failure.exc_value) for failure in self._kept]

    def show(self) -> None:
        """Prints what was kept, as Python would have done at once."""
        for failure in self._kept:
            threading.__excepthook__(failure)

    def _keep(self, failure: threading.ExceptHookArgs) -> None:
        self._kept.append(failure)
        if NO_THREAD in str(failure.exc_value):
            self._end_workers()

    def __enter__(self) -> Self:
        self._before = threading.excepthook
        threading.excepthook = self._keep
        return self

    def __exit__(self, *_: object) -> None:
        threading.excepthook = self._before
