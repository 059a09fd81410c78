"""A ledger of a run's time: what its seconds were spent on, over all its processes."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

# Each second of a run counts in one of them, named here as a reader sees it.
CATEGORIES: Mapping[str, str] = MappingProxyType(
    {
        "start": "start",
        "tracing": "tracing",
        "input": "waiting for input",
        "step": "steps",
        "evaluation": "evaluation",
        "checkpoint": "checkpoints",
        "other": "other",
        "lost": "lost to restarts",
    }
)
_START_TIME = 19  # in /proc/self/stat, counted from the field behind the program's name


class Ledger:
    """Counts the seconds of a run in categories, of which one is under way at any time.

    So the categories add up to the run's wall time. They are:

    - start: from the start of a process to its first step: imports, model, checkpoint, dataset
    - tracing: TensorFlow makes the graph of the training step
    - input: steps wait for their batch
    - step: the rest of the steps
    - evaluation: evaluations with their pictures, and the graphs that they need
    - checkpoint: checkpoints are written, also of the best weights
    - other: the log, the plot, the progress bar, agreement with other workers
    - lost: from the last line of the log that a process went on from to its own start. These are
      steps that had to be taken again, and the time in which nothing ran.

    One thread counts; others may read.
    """

    def __init__(
        self, *, began: float | None = None, clock: Callable[[], float] | None = None
    ) -> None:
        """Starts with the category "start".

        Args:
          began: when this process began, in seconds since 1970, see `process_start`; None for now.
          clock: tells the seconds since 1970; None for that of this machine.
        """
        self._clock = clock or steady_clock()
        self._began = self._since = self._clock() if began is None else began
        self._category = "start"
        self._seconds = dict.fromkeys(CATEGORIES, 0.0)
        self._lock = threading.Lock()

    def carry_on(self, seconds: Mapping[str, float], until: float | None) -> None:
        """Adds the time of the run's earlier processes.

        Args:
          seconds: what they had counted by category at the step that this process goes on from.
          until: when that was, in seconds since 1970: the time from then to the start of this
            process is lost. None if it is not, as the run had come to its end.
        """
        with self._lock:
            for category in CATEGORIES:
                self._seconds[category] += seconds.get(category, 0.0)
            if until is not None:
                self._seconds["lost"] += max(0.0, self._began - until)

    def enter(self, category: str) -> str:
        """Counts the time from now on in a category, and returns the one that ends."""
        now = self._clock()
        with self._lock:
            before, self._category = self._category, category
            self._seconds[before] += now - self._since
            self._since = now
        return before

    @contextmanager
    def of(self, category: str) -> Iterator[None]:
        """Counts the time of a `with` block in a category, and what follows as before."""
        before = self.enter(category)
        try:
            yield
        finally:
            self.enter(before)

    @contextmanager
    def steps(self) -> Iterator[dict[str, float]]:
        """Counts the time of a `with` block as steps.

        The block puts into the dictionary that it gets how many of its seconds belong to other
        categories. These are counted when the block ends, all at once, so that no category falls.
        """
        before = self.enter("step")
        parts: dict[str, float] = {}
        try:
            yield parts
        finally:
            now = self._clock()
            with self._lock:
                rest = now - self._since
                for category, seconds in parts.items():
                    # What a graph measures is read off another clock.
                    part = min(max(0.0, seconds), rest)
                    self._seconds[category] += part
                    rest -= part
                self._seconds["step"] += rest
                self._category, self._since = before, now

    def so_far(self) -> tuple[dict[str, float], float]:
        """Returns the seconds by category until now, and the time now, in seconds since 1970."""
        self.enter(self._category)
        return dict(self._seconds), self._since

    def read(self) -> dict[str, float]:
        """Returns the seconds by category for another thread; no number ever falls.

        Steps under way are left out until it is known how long they waited for input.
        """
        with self._lock:
            seconds = dict(self._seconds)
            if self._category != "step":
                seconds[self._category] += max(0.0, self._clock() - self._since)
        return seconds


def steady_clock() -> Callable[[], float]:
    """Makes a clock of seconds since 1970 that nobody sets while this process runs."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


def process_start() -> float:
    """Returns when the kernel started this process, in seconds since 1970, to 0.01 s."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    after_boot = int(fields[_START_TIME]) / os.sysconf("SC_CLK_TCK")
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - after_boot)


def time_sentence(seconds: Mapping[str, float]) -> str:
    """Describes a ledger in a sentence, the longest times first: "time: 3 min 12 s: 71 % steps"."""
    total = sum(seconds.values())
    longest = sorted(seconds.items(), key=lambda item: -item[1])
    shares = [
        f"{value / total:.0%} {CATEGORIES[category]}"
        for category, value in longest
        if round(value / total * 100)
    ]
    return f"time: {duration(total)}: {', '.join(shares)}"


def duration(seconds: float) -> str:
    """Writes a time as "2 d 3 h", "3 min 12 s" or "8 s": its two largest units, rounded down."""
    whole = int(seconds)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    parts = []
    for name, size in units:
        count, whole = divmod(whole, size)
        parts.append((count, name))
    first = next((index for index, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(f"{count} {name}" for count, name in parts[first : first + 2])
