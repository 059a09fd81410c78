"""Kills of commands at moments that a test names, and what must hold after each."""

import glob
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from beam_jobs.writing.output import read_manifest
from schemas.file_names import COMPLETED
from schemas.tfrecord import read_records
from tests.support.forked import CONTEXT
from tests.support.receipts import contents

NEWEST = frozenset({COMPLETED, "dataset_info.json", "features.json"})  # of the newest version
_WRITES = os.O_WRONLY | os.O_RDWR
_PAUSE_S = 0.03


def matches(folder: Path, pattern: str) -> set[str]:
    """Returns what matches a pattern while a command makes and deletes files, relative to a folder.

    `Path.glob` fails on a folder that is deleted between finding it and looking into it.
    """
    return set(glob.iglob(pattern, root_dir=folder))  # noqa: PTH207


@dataclass(frozen=True)
class Change:
    """A change of a file, before which a process is killed.

    Attributes:
      action: create, rename, remove or rmdir.
      pattern: path below the dataset directory, the new one of a rename; * is any text.
      number: which of the changes that match it is, from 1.
    """

    action: str
    pattern: str
    number: int = 1


def exit_code_at(change: Change, module: str, arguments: Sequence[str], directory: Path) -> int:
    """Runs a command until it is about to make a change, and kills it and its children there.

    Its process is forked off one that has imported the module, which takes seconds otherwise.

    Args:
      change: where to kill it.
      module: module with a function `main`, such as beam_jobs.build.
      arguments: the command's arguments.
      directory: the dataset directory.

    Returns:
      -9 if it was killed, its own exit status if it never made such a change.
    """
    process = CONTEXT.Process(target=_run, args=(change, module, arguments, directory))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _run(change: Change, module: str, arguments: Sequence[str], directory: Path) -> None:
    os.setsid()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    numbers = count(1)  # any thread may take the next

    def kill_at_change(event: str, args: tuple[Any, ...]) -> None:
        action, path = _changed(event, args)
        if (
            action == change.action
            and path.startswith(f"{directory}/")
            and fnmatchcase(os.path.relpath(path, directory), change.pattern)
            and next(numbers) == change.number
        ):
            os.killpg(0, signal.SIGKILL)

    # Python calls it before it makes the change.
    sys.addaudithook(kill_at_change)
    sys.exit(import_module(module).main(list(arguments)))


def _changed(event: str, args: tuple[Any, ...]) -> tuple[str, str]:
    """Returns action and path of an audit event, empty where it is no change of a file."""
    if event == "open" and isinstance(args[0], str | bytes) and args[2] & _WRITES:
        return "create", os.fsdecode(args[0])
    if event == "os.rename":
        return "rename", os.fsdecode(args[1])
    if event in ("os.remove", "os.rmdir"):
        return event.removeprefix("os."), os.fsdecode(args[0])
    return "", ""


def read_version(directory: Path, version: int | None = None) -> int:
    """Reads all records of a version, None for the newest, and returns their number.

    Raises:
      AssertionError: a shard has another number of records than the manifest says.
    """
    manifest = read_manifest(str(directory), version)
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    for shard in shards:
        with (directory / shard.name).open("rb") as file:
            assert len(list(read_records(file))) == shard.records
    return sum(shard.records for shard in shards)


@contextmanager
def version_is_read(directory: Path, version: int) -> Iterator[list[str | None]]:
    """Reads a version in a loop; yields what each reading failed with, None if it did not."""
    readings: list[str | None] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(_PAUSE_S):
            try:
                read_version(directory, version)
                readings.append(None)
            except Exception as error:  # whatever a reader may meet
                readings.append(repr(error))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield readings
    finally:
        ended.set()
        thread.join()


def check_killed(
    directory: Path, before: Mapping[str, bytes], expected: Mapping[str, bytes]
) -> bool:
    """Checks a dataset directory to which a killed command was adding a version.

    Args:
      directory: the dataset directory.
      before: its files before the command.
      expected: its files after a command that is not killed.

    Returns:
      Whether the new version has been published.
    """
    left = contents(directory)
    kept = [name for name in before if name not in NEWEST]
    assert kept
    assert [name for name in kept if left.get(name) != before[name]] == []
    assert left[COMPLETED] in (before[COMPLETED], expected[COMPLETED])
    published = left[COMPLETED] == expected[COMPLETED]
    if published:
        new = [name for name in expected if name not in NEWEST]
        assert [name for name in new if left.get(name) != expected[name]] == []
    assert read_version(directory)
    assert read_version(directory, 1)
    return published
