"""Requests to stop by signals: SIGTERM, and SIGINT of Ctrl-C."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

from schemas.program import STOP_SIGNALS

STOPPED = 75  # EX_TEMPFAIL of sysexits.h: run the same command again to go on
_GRACE_S = 5.0
_LOOKS = 3  # at missing processes, before steps are given up: one may be starting again
_STOPPING = "stopping after the steps under way; Ctrl-C again ends at once, without a checkpoint\n"


class StopRequest:
    """Notes SIGTERM and Ctrl-C, as a context manager, instead of ending the process.

    Workers must stop at the same step, so the training loop reads `is_made` between steps. A second
    Ctrl-C ends the process at once. Outside the main thread, where Python handles no signals, this
    notes nothing.

    Args:
      may_exit: whether to end the process, from a thread, if the main thread does not come to
        heed a signal: with `STOPPED` or 130 five seconds after a signal that came before
        `loop_begins`, and at the second Ctrl-C. Python calls its handlers in the main thread, and
        calls of TensorFlow may wait there for other machines for ever. Only for programs.
      missing: returns the names of processes that do not answer and without which no step ends, ""
        if there are none. If they are missing for 15 seconds after a signal, `may_exit` ends the
        process in `steps`, too.

    Attributes:
      is_made: True once a signal has come.
    """

    def __init__(self, *, may_exit: bool = False, missing: Callable[[], str] = lambda: "") -> None:
        self.is_made = False
        self._may_exit = may_exit
        self._missing = missing
        self._loop_has_begun = False
        self._is_in_steps = False

    def loop_begins(self) -> None:
        """Says that `is_made` is read from now on, and that there is something to save."""
        self._loop_has_begun = True

    @contextmanager
    def steps(self) -> Iterator[None]:
        """Says that the block takes steps, in which other processes take part."""
        self._is_in_steps = True
        try:
            yield
        finally:
            self._is_in_steps = False

    def __enter__(self) -> Self:
        self._is_main = threading.current_thread() is threading.main_thread()
        if not self._is_main:
            return self
        if self._may_exit:
            reader, self._writer = socket.socketpair()
            self._writer.setblocking(False)
            threading.Thread(target=self._watch, args=(reader,), daemon=True).start()
            # Python writes the number of each signal there, whatever the main thread does.
            self._wakeup_before = signal.set_wakeup_fd(self._writer.fileno())
        self._before = {
            number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)
        }
        release_sigterm()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_main:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._may_exit:
            signal.set_wakeup_fd(self._wakeup_before)
            self._writer.close()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.is_made = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            # Not by print, which the signal may have interrupted.
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, _STOPPING.encode())

    def _watch(self, signals: socket.socket) -> None:
        """Ends the process if it has to, until the other end of a connection is closed."""
        received: list[int] = []
        looks = 0
        while True:
            signals.settimeout(_GRACE_S if received else None)
            try:
                numbers = signals.recv(64)
            except TimeoutError:
                if not self._loop_has_begun:
                    _exit(received[0])
                missing = self._missing() if self._is_in_steps else ""
                looks = looks + 1 if missing else 0
                if looks == _LOOKS:
                    _exit(received[0], f" while steps wait for {missing}")
                continue
            if not numbers:
                return
            received += [number for number in numbers if number in STOP_SIGNALS]
            if received.count(signal.SIGINT) > 1:
                _exit(signal.SIGINT)


def _exit(number: int, place: str = "") -> None:
    """Ends the process because of a signal."""
    name = signal.Signals(number).name
    os.write(2, f"stopped by {name}{place}: the same command goes on\n".encode())
    os._exit(STOPPED if number == signal.SIGTERM else 128 + number)


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
