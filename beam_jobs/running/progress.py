"""A progress bar for a running job, from what has appeared in its staging directory."""

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
from beam_jobs.options import BuildOptions, CompactOptions, InputOptions, JobOptions
from beam_jobs.prepare.prepared_chunk import PreparedChunk
from beam_jobs.storage import files
from schemas.file_names import is_index_file
from schemas.tfrecord import CorruptRecordError

_LOCAL_INTERVAL_S, _REMOTE_INTERVAL_S = 0.5, 10.0
_LOOKING_FRACTION = 0.05  # of the time, at most


@contextmanager
def shown(options: JobOptions, *, enabled: bool) -> Iterator[None]:
    """Shows a bar on standard error while the block runs."""
    if not enabled:
        yield
        return
    done, succeeded = threading.Event(), threading.Event()
    thread = threading.Thread(target=_watch, args=(options, done, succeeded), daemon=True)
    thread.start()
    try:
        yield
        succeeded.set()
    finally:
        done.set()
        thread.join()


def _watch(options: JobOptions, done: threading.Event, succeeded: threading.Event) -> None:
    local = FileSystems.get_scheme(options.output) is None
    interval_s = _LOCAL_INTERVAL_S if local else _REMOTE_INTERVAL_S
    if isinstance(options, InputOptions):
        first, unit = "reading the table", " images"
    else:
        finds_layouts = isinstance(options, CompactOptions) and options.finds_layouts
        first = "finding layouts" if finds_layouts else "reading the indexes"
        unit = " shards"
    with tqdm(desc=first, unit=unit, dynamic_ncols=True) as bar:
        watcher = _watcher(bar, options)
        pause_s = interval_s
        while not done.wait(pause_s):
            started_s = time.monotonic()
            with suppress(OSError, BuildError):  # a file was moved meanwhile: look again
                watcher.look()
            pause_s = _pause_s(interval_s, time.monotonic() - started_s)
        # What the last look came too early for has left the staging directory.
        if succeeded.is_set() and bar.total is not None:
            watcher.finish()


def _pause_s(interval_s: float, look_s: float) -> float:
    """Seconds until the next look, from what the last one has taken."""
    # A look of 1 s is followed by a pause of 1 / 0.05 - 1 = 19 s: it takes a twentieth of the time.
    return max(interval_s, look_s * (1 / _LOOKING_FRACTION - 1))


def _watcher(bar: tqdm, options: JobOptions) -> "_ImagesWatcher | _ShardsWatcher":
    if isinstance(options, BuildOptions):
        return _BuildWatcher(bar, options)
    if isinstance(options, InputOptions):
        return _ImagesWatcher(bar, options, "predicting")
    return _ShardsWatcher(bar, options)


class _ImagesWatcher:
    """Brings the bar of a job up to date that reads images, from the chunks that it has staged.

    It lists a folder only while files come into it.
    """

    def __init__(self, bar: tqdm, options: InputOptions, activity: str) -> None:
        self._bar = bar
        self._staging = options.staging
        self._activity = activity
        self._seen: set[str] = set()
        self._rejected = 0

    def look(self) -> None:
        if self._bar.total is None:
            self._read_inputs()
        elif self._bar.n < self._bar.total:
            self._count_prepared()
        else:
            self._look_further()
        self._show()

    def finish(self) -> None:
        self._bar.update(self._bar.total - self._bar.n)
        self._show()

    def _look_further(self) -> None:
        """Looks at what comes when all images are read."""

    def _parts(self) -> list[str]:
        """Text behind the bar."""
        return [f"rejected {self._rejected}"] if self._rejected else []

    def _show(self) -> None:
        self._bar.set_postfix_str(", ".join(self._parts()))

    def _read_inputs(self) -> None:
        inputs = self._staging.inputs
        if files.exists(inputs):
            self._bar.set_description(self._activity, refresh=False)
            self._bar.reset(total=json.loads(files.read(inputs)))

    def _count_prepared(self) -> None:
        new = sorted(set(self._staging.list_sidecars()) - self._seen)
        sidecars = files.read_ranges((path, 0, sys.maxsize) for path in new)
        for path, data in zip(new, sidecars, strict=True):
            try:
                chunk = PreparedChunk.from_bytes(data)
            except CorruptRecordError:
                continue  # damaged: it will be prepared again
            self._seen.add(path)
            self._rejected += len(chunk.rejected)
            self._bar.update(chunk.inputs)


class _BuildWatcher(_ImagesWatcher):
    """Brings the bar of a build up to date, which also shows its shards."""

    def __init__(self, bar: tqdm, options: BuildOptions) -> None:
        super().__init__(bar, options, "preparing")
        self._shards = _Shards(options)

    def finish(self) -> None:
        self._shards.finished = self._shards.planned
        super().finish()

    def _look_further(self) -> None:
        if not self._shards.planned:
            self._shards.read_plan()
        if self._shards.planned:
            self._shards.count_finished()

    def _parts(self) -> list[str]:
        if not self._shards.planned:
            return super()._parts()
        return [*super()._parts(), f"shards {self._shards.finished}/{self._shards.planned}"]


class _ShardsWatcher:
    """Brings the bar of a job up to date that reads no images, such as a compaction."""

    def __init__(self, bar: tqdm, options: JobOptions) -> None:
        self._bar = bar
        self._shards = _Shards(options)

    def look(self) -> None:
        self._shards.count_finished()
        if not self._shards.finished:
            return  # the plan may still be that of a launch that was killed
        if self._bar.total is None:
            self._shards.read_plan()
            self._bar.set_description("writing shards", refresh=False)
            self._bar.reset(total=self._shards.planned)
        self._bar.update(self._shards.finished - self._bar.n)

    def finish(self) -> None:
        self._bar.update(self._bar.total - self._bar.n)


class _Shards:
    """Counts the shards of a launch.

    Attributes:
      planned: number of shards that it will write, 0 before it is known.
      finished: number of shards that it has written.
    """

    def __init__(self, options: JobOptions) -> None:
        self._plan = options.staging.plan
        self._directory = options.finished_directory
        self.planned = self.finished = 0

    def read_plan(self) -> None:
        if files.exists(self._plan):
            self.planned = sum(json.loads(files.read(self._plan))["shards"])

    def count_finished(self) -> None:
        names = map(posixpath.basename, files.list_below(self._directory))
        # They are fewer again while they are moved into the dataset directory.
        self.finished = max(self.finished, sum(is_index_file(name) for name in names))
