"""Exceptions of Beam's threads, kept until it is clear whether they need to be printed."""

import threading
from typing import Self


class ThreadFailures:
    """Keeps the exceptions that end threads within the block, instead of printing tracebacks.

    When a build is stopped or loses a worker process, Beam's threads fail one after the other. The
    command then ends with a sentence; where it has none, `show` prints what was kept.
    """

    def __init__(self) -> None:
        self._kept: list[threading.ExceptHookArgs] = []

    @property
    def messages(self) -> list[str]:
        """The exceptions' messages."""
        return [str(failure.exc_value) for failure in self._kept]

    def show(self) -> None:
        """Prints what was kept, as Python would have done at once."""
        for failure in self._kept:
            threading.__excepthook__(failure)

    def __enter__(self) -> Self:
        self._before = threading.excepthook
        threading.excepthook = self._kept.append
        return self

    def __exit__(self, *_: object) -> None:
        threading.excepthook = self._before
