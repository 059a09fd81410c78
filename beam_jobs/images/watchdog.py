"""A watchdog that ends a worker which an image keeps busy for too long."""

import os
import sys
import threading
import time
from typing import Self

from beam_jobs.errors import RESUMES

_CHECK_SECONDS = 0.5


class ImageWatchdog:
    """Ends this process, naming the image, when preparing an image takes too long.

    A decoder that hangs can't be interrupted from within its own process, so the process has to
    go. The run after it, or the runner's next try, finds that the chunk was begun and prepares its
    images by `process.ImageProcess`, which rejects what exceeds the limits.

    Use it as a context manager around the images that one thread prepares.
    """

    def __init__(self, limit_s: float) -> None:
        """Initializes a watchdog that allows each image so many seconds of wall time."""
        self._limit_s = limit_s
        self._begun: tuple[float, str] | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="image watchdog", daemon=True)

    def begin(self, name: str) -> None:
        """Starts the clock of an image; `name` is how the message names it."""
        self._begun = (time.monotonic(), name)

    def end(self) -> None:
        """Stops the clock."""
        self._begun = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(_CHECK_SECONDS):  # sleeps, but not beyond the end
            # Read once: the other thread may set it to None at any time. A tuple is set as a whole,
            # so no lock is needed.
            begun = self._begun
            if begun and time.monotonic() - begun[0] > self._limit_s:
                # `sys.stderr` leads nowhere in the workers of a local build.
                print(
                    f"error: preparing {begun[1]} takes more than {self._limit_s:g} s, so this "
                    "worker process was ended; the next try prepares the image in a process of "
                    f"its own and rejects it if it exceeds --max-image-seconds; {RESUMES}",
                    file=sys.__stderr__,
                    flush=True,
                )
                # Not `sys.exit`, which would end this thread alone, nor a signal, which Python
                # heeds in the main thread once the decoder returns. Pillow decodes without the
                # interpreter's lock, so this thread gets its turn while the other hangs.
                os._exit(1)
