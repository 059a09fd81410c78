"""Ctrl-C and SIGTERM, which end a build with a sentence instead of tracebacks."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

from beam_jobs.errors import RESUMES

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Raises KeyboardInterrupt at the first stop signal within the block, and remembers it.

    Beam may turn the exception into one of its own: what counts is that `received` is set. A
    second signal ends the process at once. In threads other than the main one, which can't handle
    signals, nothing is changed.

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
            self._before = {each: signal.signal(each, self._handle) for each in _SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._main:
            for each, handler in self._before.items():
                signal.signal(each, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        self.received = signal.Signals(number)
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        raise KeyboardInterrupt
