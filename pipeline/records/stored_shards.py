"""The shards of a version, which must stay the files whose index a reader has in memory.

A reader knows from the index where a record lies and what its label is, and reads its bytes later.
By then the dataset may have been built anew in its place, restored from a copy, or damaged: bytes
of one dataset would be joined with labels of another. `StoredShards` opens the files for all
readers in Python, and refuses those that have changed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.records.info import DatasetInfo, why_replaced
from pipeline.records.open_file import FileState, OpenFile, OpenFiles

CHANGED = "the file was changed, and is not the one of the build any more"


class ReplacedError(ValueError):
    """The directory no longer holds the version that is read; the text is a whole sentence."""


class StoredShards:
    """Opens local shards of a version, and notices when they change.

    - When a shard is opened for the first time, COMPLETED must still name the version, by the
      checksum of its manifest. A build deletes COMPLETED before it touches any other file.
    - Later, the kernel tells whether the open file was changed, and so it does of one that was
      deleted, although other hard links may hold it. Then the file at the path is opened, and all
      of it must have the checksum of the manifest. So a copy of the same bytes may take its place.
    - Files of a directory that is renamed as a whole do not change. Those that are open are read
      on, and any other is an error.

    What changes between that look and the read is not noticed, nor is a change in the same tick of
    the kernel's clock as the look before, at most 10 ms.

    Threads may share the object, which may be pickled or copied by fork. Two threads may check the
    same file at the same time; nothing is locked.
    """

    def __init__(self, info: DatasetInfo, paths: Sequence[str]) -> None:
        """Opens nothing yet.

        Args:
          info: the version.
          paths: its shards, whose positions are the numbers for `open`.
        """
        self._info, self._paths = info, [Path(path) for path in paths]
        self._files = OpenFiles()
        self._states: dict[int, FileState] = {}

    def open(self, number: int) -> OpenFile:
        """Returns a shard, open and unchanged.

        Raises:
          OSError: it is missing, or can't be opened or read.
          ReplacedError: COMPLETED no longer names the version.
          ValueError: the file has changed.
        """
        file = self._files.get(number)
        if file is not None and file.state() == self._states.get(number):
            return file
        file = self._files.open(number, self._paths[number])
        state, earlier = file.state(), self._states.get(number)
        if earlier is None:
            if reason := why_replaced(self._info):
                raise ReplacedError(reason)
        elif not state.is_unchanged_since(earlier):
            self._check_whole(file, number)
        self._states[number] = state
        return file

    def _check_whole(self, file: OpenFile, number: int) -> None:
        """Raises ValueError unless a file has the bytes that the build has written."""
        shard = self._info.shard(self._paths[number].name)
        if file.checksum() != (shard.size_bytes, shard.crc32c):
            raise ValueError(CHANGED)

    def __getstate__(self) -> dict[str, Any]:
        # Elsewhere, the same files may have other numbers and times.
        return {"info": self._info, "paths": self._paths}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._info, self._paths = state["info"], state["paths"]
        self._files, self._states = OpenFiles(), {}
