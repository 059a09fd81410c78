"""Requests to stop by signals: SIGTERM, and SIGINT of Ctrl-C."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

_STOPPING = "stopping after the steps under way; Ctrl-C again ends at once, without a checkpoint\n"


class StopRequest:
    """Notes SIGTERM and Ctrl-C, as a context manager, instead of ending the process.

    Workers must stop at the same step, so the training loop reads `is_made` between steps. A second
    Ctrl-C ends the process at once.

    Attributes:
      is_made: True once a signal has come.
    """

    def __init__(self) -> None:
        self.is_made = False

    def __enter__(self) -> Self:
        self._before = {
            number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)
        }
        release_sigterm()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.is_made = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            # Not by print, which the signal may have interrupted.
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, _STOPPING.encode())


def hold_sigterm() -> None:
    """Holds SIGTERM back until a `StopRequest` is entered, or `release_sigterm` is called.

    Threads that are started meanwhile never take SIGTERM: it comes to the main thread.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def release_sigterm() -> None:
    """Ends `hold_sigterm`; a signal that was held back comes now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


@contextmanager
def keep_sigterm_handler() -> Iterator[None]:
    """Restores the handler of SIGTERM at the end if code in the `with` block replaces it.

    TensorFlow does when it sets up a cluster. Its handler swallows SIGTERM, and the process goes
    on. A signal that comes meanwhile is held back for the restored handler, unless it comes to a
    thread that was started without `hold_sigterm`. Outside the main thread, where Python can't set
    handlers, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        if handler is not None:  # set by Python, so that Python can set it again
            signal.signal(signal.SIGTERM, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
