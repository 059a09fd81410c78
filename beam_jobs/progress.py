"""A progress bar for a running build, from what has appeared in its staging directory."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from tqdm import tqdm

from beam_jobs import files
from beam_jobs.errors import BuildError
from beam_jobs.job import INPUTS_NAME
from beam_jobs.options import BuildOptions
from beam_jobs.prepared import SIDECAR, PreparedChunk
from beam_jobs.shard_plan import PLAN_NAME

_LOCAL_INTERVAL_S, _REMOTE_INTERVAL_S = 0.5, 10.0


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
        seen: set[str] = set()
        counts: Counter[str] = Counter()
        while not done.wait(interval_s):
            try:
                _update(bar, options, seen, counts)
            except (OSError, BeamIOError, BuildError):
                continue  # a file was moved while we looked: look again


def _update(bar: tqdm, options: BuildOptions, seen: set[str], counts: Counter[str]) -> None:
    inputs = files.join(options.staging, INPUTS_NAME)
    plan = files.join(options.staging, PLAN_NAME)
    if bar.total is None and files.exists(inputs):
        bar.set_description("preparing")
        bar.reset(total=json.loads(files.read(inputs)))
    if bar.total is None:
        return
    pattern = files.join(options.prepared_directory, f"*{SIDECAR}")
    for path in sorted({each.path for each in files.list_files(pattern)} - seen):
        chunk = PreparedChunk.from_bytes(files.read(path))
        seen.add(path)
        counts["rejected"] += len(chunk.rejected)
        bar.update(chunk.inputs)
    parts = [f"rejected {counts['rejected']}"] if counts["rejected"] else []
    if files.exists(plan):
        shards = sum(json.loads(files.read(plan))["shards"])
        finished = files.list_files(files.join(options.staged_directory, "receipts-*.index-*"))
        parts.append(f"shards {len(finished)}/{shards}")
    bar.set_postfix_str(", ".join(parts))
