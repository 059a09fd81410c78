"""Ctrl-C and SIGTERM, which end a command with a sentence instead of tracebacks."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

from beam_jobs.errors import RESUMES
from schemas.program import STOP_SIGNALS


class StopSignals:
    """Raises KeyboardInterrupt at the first stop signal within the block, and remembers it.

    Beam may turn the exception into one of its own: what counts is that `received` is set. A
    second signal ends the process at once. In threads other than the main one, which can't handle
    signals, nothing is changed.

    From the signal on, Python no longer reports what objects raise while they are freed. The
    exception leaves some half-made wherever it comes, such as a ZipFile within `numpy.savez`,
    which then fails to write its end.

    Attributes:
      received: the signal, None as long as there was none.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    @property
    def exit_status(self) -> int:
        """128 + the signal's number, as shells have it."""
        return 128 + (self.received or signal.SIGINT)

    def sentence(self, *, local: bool, resumes: bool) -> str:
        """Returns what to tell the user.

        Args:
          local: whether the job has ended with this process.
          resumes: whether the job leaves work to go on with.
        """
        sentence = f"stopped by {(self.received or signal.SIGINT).name}"
        if not local:
            sentence += "; the job may go on without this process: stop it at its runner"
        return f"{sentence}; {RESUMES}" if resumes else sentence

    def __enter__(self) -> Self:
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._before = {number: signal.signal(number, self._handle) for number in STOP_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        if self._main:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        self.received = signal.Signals(number)
        for stop_signal in STOP_SIGNALS:
            signal.signal(stop_signal, signal.SIG_DFL)
        sys.unraisablehook = lambda _: None
        raise KeyboardInterrupt


@contextmanager
def stop_signals_held() -> Iterator[None]:
    """Holds stop signals back until the end of the block, and for ever in processes started in it.

    Processes are started in such a block, so that no signal interrupts their start. A terminal
    sends a signal to all of its processes; those leave it to this one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # is inherited, unlike handlers
    # Another thread may get the signal; the handler is called in this one all the same.
    before = {
        stop_signal: signal.signal(stop_signal, lambda number, _: held.append(number))
        for stop_signal in STOP_SIGNALS
    }
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for stop_signal, handler in before.items():
            signal.signal(stop_signal, handler)
        if held:
            signal.raise_signal(held[0])
