"""A progress bar for a running build, from what has appeared in its staging directory."""

import json
import posixpath
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from apache_beam.io.filesystems import FileSystems
from tqdm import tqdm

from beam_jobs.errors import BuildError
from beam_jobs.options import BuildOptions
from beam_jobs.prepare.prepared_chunk import PreparedChunk
from beam_jobs.storage import files
from schemas.file_names import is_index_file
from schemas.tfrecord import CorruptRecordError

_LOCAL_INTERVAL_S, _REMOTE_INTERVAL_S = 0.5, 10.0
_LOOKING_FRACTION = 0.05  # of the time, at most


@contextmanager
def shown(options: BuildOptions, *, enabled: bool) -> Iterator[None]:
    """Shows a bar on standard error while the block runs."""
    if not enabled:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_watch, args=(options, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _watch(options: BuildOptions, done: threading.Event) -> None:
    local = FileSystems.get_scheme(options.output) is None
    interval_s = _LOCAL_INTERVAL_S if local else _REMOTE_INTERVAL_S
    with tqdm(desc="reading the table", unit=" images", dynamic_ncols=True) as bar:
        watcher = _Watcher(bar, options)
        pause_s = interval_s
        while not done.wait(pause_s):
            started_s = time.monotonic()
            with suppress(OSError, BuildError):  # a file was moved meanwhile: look again
                watcher.look()
            pause_s = _pause_s(interval_s, time.monotonic() - started_s)


def _pause_s(interval_s: float, look_s: float) -> float:
    """Seconds until the next look, from what the last one has taken."""
    # A look of 1 s is followed by a pause of 1 / 0.05 - 1 = 19 s: it takes a twentieth of the time.
    return max(interval_s, look_s * (1 / _LOOKING_FRACTION - 1))


class _Watcher:
    """Brings a bar up to date, and lists a folder only while files come into it."""

    def __init__(self, bar: tqdm, options: BuildOptions) -> None:
        self._bar = bar
        self._options = options
        self._seen: set[str] = set()
        self._rejected = 0
        self._shards = 0  # 0: not planned yet

    def look(self) -> None:
        if self._bar.total is None:
            self._read_inputs()
        elif self._bar.n < self._bar.total:
            self._count_prepared()
        elif not self._shards:
            self._read_plan()
        parts = [f"rejected {self._rejected}"] if self._rejected else []
        if self._shards:
            parts.append(f"shards {self._count_finished()}/{self._shards}")
        self._bar.set_postfix_str(", ".join(parts))

    def _read_inputs(self) -> None:
        inputs = self._options.staging.inputs
        if files.exists(inputs):
            self._bar.set_description("preparing")
            self._bar.reset(total=json.loads(files.read(inputs)))

    def _count_prepared(self) -> None:
        new = sorted(set(self._options.staging.list_sidecars()) - self._seen)
        sidecars = files.read_ranges((path, 0, sys.maxsize) for path in new)
        for path, data in zip(new, sidecars, strict=True):
            try:
                chunk = PreparedChunk.from_bytes(data)
            except CorruptRecordError:
                continue  # damaged: it will be prepared again
            self._seen.add(path)
            self._rejected += len(chunk.rejected)
            self._bar.update(chunk.inputs)

    def _read_plan(self) -> None:
        plan = self._options.staging.plan
        if files.exists(plan):
            self._shards = sum(json.loads(files.read(plan))["shards"])

    def _count_finished(self) -> int:
        names = map(posixpath.basename, files.list_below(self._options.finished_directory))
        return sum(is_index_file(name) for name in names)
