"""Local files that several threads read at once."""

import os
from typing import NamedTuple


class FileState(NamedTuple):
    """Facts that the file system tells of a file; they differ once it is changed or replaced."""

    device: int
    inode: int
    size_bytes: int
    changed_ns: int


class OpenFile:
    """A file that is open as long as somebody holds this object.

    Another thread may still read from a file when a cache drops it, so nobody else may close it.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, size: int, offset: int) -> bytes:
        """Reads from a place of the file: processes and threads share no position in it."""
        return os.pread(self._descriptor, size, offset)

    def read_into(self, memory: memoryview, offset: int) -> None:
        """Fills memory, of bytes, from a place of the file.

        Raises:
          ValueError: the file ends before the memory is full.
        """
        while memory:
            size = os.preadv(self._descriptor, [memory], offset)
            if not size:
                raise ValueError("file ends inside a record")
            memory, offset = memory[size:], offset + size  # nothing is left, in most cases

    def state(self) -> FileState | None:
        """Returns the state of the file; None if it was deleted, or another took its place."""
        found = os.fstat(self._descriptor)
        if not found.st_nlink:
            return None
        return FileState(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):  # it isn't where the file can't be opened
            os.close(self._descriptor)
