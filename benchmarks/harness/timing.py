"""Timing of input pipelines: in separate processes, by turns, with the first batch separate.

A contender is any function of a module that returns an iterator over batches. It runs in a new
process, so that none has the threads, memory or warm caches of another; a round goes through all
contenders, so that other work of the machine slows all of them alike.
"""

import importlib
import json
import multiprocessing
import os
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from schemas.program import end_with_parent


@dataclass(frozen=True, kw_only=True)
class Contender:
    """An input pipeline to be timed.

    Attributes:
      function: `package.module:name` of a function that returns an endless iterator over batches.
      options: its keyword arguments.
      environment: variables of its process, beside those of this one.
    """

    function: str
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Number of batches for which a contender is timed.

    Attributes:
      batch_size: images of a batch.
      batches: batches that are timed.
      warmup: batches between the first and those, which are not timed.
    """

    batch_size: int
    batches: int
    warmup: int = 0

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.batches < 1 or self.warmup < 0:
            raise ValueError(f"batch_size and batches must be at least 1, got {self}")


@dataclass(frozen=True, kw_only=True)
class Round:
    """Figures of a contender in one round.

    Attributes:
      first_batch_s: seconds from the call of its function to its first batch.
      images_per_s: of the batches that were timed.
      cpu_ms_per_image: processor time of its whole process tree over the same batches.
      peak_mb: memory of its process tree, proportional set size, behind its first or last batch.
    """

    first_batch_s: float
    images_per_s: float
    cpu_ms_per_image: float
    peak_mb: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """Medians over the rounds of a contender, and how far apart the rounds were."""

    images_per_s: float
    lowest: float
    highest: float
    first_batch_s: float
    cpu_ms_per_image: float
    peak_mb: float

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> Self:
        """Summarizes rounds of a contender."""
        speeds = [one.images_per_s for one in rounds]
        return cls(
            images_per_s=statistics.median(speeds),
            lowest=min(speeds),
            highest=max(speeds),
            first_batch_s=statistics.median(one.first_batch_s for one in rounds),
            cpu_ms_per_image=statistics.median(one.cpu_ms_per_image for one in rounds),
            peak_mb=max(one.peak_mb for one in rounds),
        )

    def columns(self, reference: Self) -> dict[str, float]:
        """Returns the columns of a table; `ratio` is to the speed of a reference."""
        return {
            "images/s": self.images_per_s,
            "lowest": self.lowest,
            "highest": self.highest,
            "ratio": self.images_per_s / reference.images_per_s,
            "CPU ms/image": self.cpu_ms_per_image,
            "first batch s": self.first_batch_s,
            "peak MB": self.peak_mb,
        }


def by_turns(
    contenders: Mapping[str, Contender], efforts: Mapping[str, Effort], *, rounds: int
) -> dict[str, list[Round]]:
    """Times each contender `rounds` times, one after the other in each round."""
    results: dict[str, list[Round]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, contender in contenders.items():
            results[name].append(apart(contender, efforts[name]))
            speed = results[name][-1].images_per_s
            print(f"round {number + 1} of {rounds}: {name} {speed:,.0f} images/s", file=sys.stderr)
    return results


def apart(contender: Contender, effort: Effort) -> Round:
    """Times a contender in a new process."""
    own = dict(os.environ)
    os.environ.update(contender.environment)
    try:
        return in_new_process(_look, contender, effort)
    finally:
        os.environ.clear()
        os.environ.update(own)


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function of a module in a new process, and returns its result.

    That process ends when this one is killed: it would slow whatever is measured next.
    """
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned, initializer=end_with_parent) as pool:
        return pool.submit(function, *arguments).result()


def _look(contender: Contender, effort: Effort) -> Round:
    module, _, name = contender.function.partition(":")
    function = getattr(importlib.import_module(module), name)
    memory = PeakMemory()
    figures = look(lambda: function(**contender.options), effort, aside=memory.sample)
    return Round(**figures, peak_mb=memory.peak_bytes / 1e6)


def look(
    make: Callable[[], Iterator[Any]],
    effort: Effort,
    *,
    clock: Callable[[], float] = time.perf_counter,
    processor: Callable[[], float] | None = None,
    aside: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Times an iterator over batches.

    Args:
      make: makes it.
      effort: how long.
      clock: counts seconds.
      processor: counts seconds of processors.
      aside: called behind the first batch and the last, where its time counts nowhere.
    """
    processor = processor or processor_s
    started = clock()
    batches = make()
    next(batches)
    first_batch_s = clock() - started
    aside()
    for _ in range(effort.warmup):
        next(batches)
    started, busy = clock(), processor()
    for _ in range(effort.batches):
        next(batches)
    elapsed_s, busy_s = clock() - started, processor() - busy
    aside()
    images = effort.batches * effort.batch_size
    return {
        "first_batch_s": first_batch_s,
        "images_per_s": images / elapsed_s,
        "cpu_ms_per_image": busy_s / images * 1e3,
    }


def processor_s() -> float:
    """Processor time of this process and its living descendants, in seconds."""
    return sum(sum(process.cpu_times()[:2]) for process in _tree())


class PeakMemory:
    """The highest memory of this process and its descendants, of all samples.

    While the context lasts they are taken by themselves. One of a process of 600 MB takes 12 ms of
    a processor.

    Attributes:
      peak_bytes: proportional set size; pages that processes share count once.
    """

    def __init__(self, *, own: bool = True, every_s: float = 1.0) -> None:
        """Starts at 0.

        Args:
          own: whether this process counts, beside its descendants.
          every_s: seconds between samples, of which shorter peaks may be missed.
        """
        self.peak_bytes = 0
        self._own = own
        self._every_s = every_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self.sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.sample()

    def _watch(self) -> None:
        while not self._done.wait(self._every_s):
            self.sample()

    def sample(self) -> None:
        """Measures the memory once."""
        total = 0
        for process in _tree()[not self._own :]:
            try:
                total += process.memory_full_info().pss
            except psutil.Error:  # it has just ended
                continue
        self.peak_bytes = max(self.peak_bytes, total)


def _tree() -> list[psutil.Process]:
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


def machine() -> dict[str, str]:
    """Describes the machine and the versions that figures depend on, beside the options."""
    processor = platform.processor() or platform.machine()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else processor,
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Formats rows with the same keys, one column per key; numbers are aligned to the right."""
    texts = [list(rows[0]), *([text(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    right = [isinstance(value, int | float) for value in rows[0].values()]
    return "\n".join(
        "  ".join(
            text.rjust(width) if numeric else text.ljust(width)
            for text, width, numeric in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in texts
    )


def error_bars(rows: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """Computes how far the slowest and the fastest round of each row are from its images/s."""
    return [
        [row["images/s"] - row["lowest"] for row in rows],
        [row["highest"] - row["images/s"] for row in rows],
    ]


def text(value: object) -> str:
    """Formats a figure for a table."""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"


def to_json(figures: Mapping[str, Any]) -> str:
    """Formats figures, and the machine that they come from, as JSON text."""
    return json.dumps({"machine": machine(), **figures}, indent=1) + "\n"
