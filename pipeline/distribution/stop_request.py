"""The request to stop that a signal brings: SIGTERM, or SIGINT of Ctrl-C."""

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
    """Notes SIGTERM and Ctrl-C, while it is entered, instead of ending the process.

    Workers must stop at the same step, so whoever trains asks for `is_made` between steps. A second
    Ctrl-C ends the process at once.

    Attributes:
      is_made: whether a signal has come.
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
    """Lets SIGTERM wait until a `StopRequest` is entered, or `release_sigterm` is called.

    Threads that are started meanwhile leave SIGTERM to the main thread for good.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def release_sigterm() -> None:
    """Ends what `hold_sigterm` began; a signal that waits comes now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


@contextmanager
def keep_sigterm_handler() -> Iterator[None]:
    """Brings back the handler of SIGTERM that code inside replaces, such as TensorFlow's.

    TensorFlow's handler for clusters swallows SIGTERM: the process goes on. A signal that comes
    meanwhile waits for the handler of before, unless a thread takes it that was started without
    `hold_sigterm`. Does nothing outside the main thread, where Python can't set handlers.
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
