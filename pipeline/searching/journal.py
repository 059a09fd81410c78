"""The file of a study, which survives processes that are killed and disks that are full."""

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, BinaryIO

from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

_STALE_S = 30
_BLOCK = 4096


class JournalError(ValueError):
    """The file of a study is damaged; the message says where."""


class Journal(JournalFileBackend):
    """A log of a study's changes: lines of JSON, appended under a lock.

    It differs from Optuna's in two ways. A line that was not written to its end, as on a full disk,
    is cut off before the next one. And the lock of a process that was killed can be told by its
    age: Optuna's is a symbolic link to the log as that process named it, and a link that leads
    nowhere from here would be waited for forever.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file, or makes it."""
        self._path, self._open_lock = path, JournalFileOpenLock(str(path), _STALE_S)
        super().__init__(str(path), self._open_lock)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Appends changes behind the last whole line."""
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        self._open_lock.acquire()
        try:
            with self._path.open("r+b") as file:
                file.truncate(_end_of_lines(file))
                file.seek(0, os.SEEK_END)
                file.write(lines.encode())
                file.flush()
                os.fsync(file.fileno())
        finally:
            self._open_lock.release()

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Reads the changes from a number on.

        Raises:
          JournalError: a line, not the last one, is damaged.
        """
        try:
            yield from super().read_logs(log_number_from)
        except ValueError as error:
            raise JournalError(
                f"line {self._damaged_line()} of the study's file {self._path} is damaged: restore "
                "the file from a backup, or choose another --search-dir"
            ) from error

    def _damaged_line(self) -> int:
        for number, line in enumerate(self._path.read_bytes().splitlines(), 1):
            try:
                json.loads(line)
            except ValueError:
                return number
        raise AssertionError


def _end_of_lines(file: BinaryIO) -> int:
    """Returns the position behind the last whole line."""
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(0, end - _BLOCK)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0
