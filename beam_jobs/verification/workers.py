"""Checks of the shards of a dataset directory in several processes."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.running.stop_signals import stop_signals_held
from beam_jobs.verification.shard import ShardCheck, check_shard, share_faults
from schemas.excluded import ExcludedRecord
from schemas.manifest import Manifest, Shard
from schemas.program import end_with_parent


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """A shard to be checked.

    Attributes:
      generation: position of its generation in the manifest.
      split: its split.
      number: its position among the shards of the split in this generation.
      shard: the shard.
      excluded: its records that are left out.
    """

    generation: int
    split: str
    number: int
    shard: Shard
    excluded: Sequence[ExcludedRecord]


# Set once in a worker process, as it holds the manifest, which may have many megabytes.
_check_one: Callable[[ShardTask], ShardCheck]


def check_shards(
    directory: str,
    manifest: Manifest,
    tasks: Sequence[ShardTask],
    *,
    exclude: bool,
    workers: int | None,
    options: PipelineOptions | None,
) -> Iterator[ShardCheck]:
    """Yields the faults that `check_shard` and `share_faults` find, in the order of the tasks.

    Args:
      directory: the dataset directory.
      manifest: its manifest.
      tasks: the shards.
      exclude: as in `check_shard`.
      workers: processes; 1 for this process alone, None for one per core.
      options: Beam's options, such as those for S3, for the processes.
    """
    check_one = partial(_check_shard, directory, manifest, exclude=exclude)
    workers = min(workers or len(os.sched_getaffinity(0)), len(tasks))
    if workers <= 1:
        yield from map(check_one, tasks)
        return
    pool = ProcessPoolExecutor(
        workers,
        multiprocessing.get_context("spawn"),  # a fork would inherit the clients' connections
        initializer=_start_worker,
        initargs=(options or PipelineOptions([]), check_one),
    )
    try:
        with stop_signals_held():
            results = pool.map(_check, tasks)
        yield from results
    finally:
        pool.shutdown(cancel_futures=True)


def _check_shard(
    directory: str, manifest: Manifest, task: ShardTask, *, exclude: bool
) -> ShardCheck:
    part = manifest.generations[task.generation].splits[task.split]
    check = check_shard(directory, manifest, task.shard, task.excluded, exclude=exclude)
    check.faults += share_faults(directory, manifest, part, task.number, check)
    return check


def _start_worker(options: PipelineOptions, check_one: Callable[[ShardTask], ShardCheck]) -> None:
    global _check_one
    end_with_parent()
    FileSystems.set_options(options)
    _check_one = check_one


def _check(task: ShardTask) -> ShardCheck:
    return _check_one(task)
