"""Local files that stay open for several threads, within the limit of open files of the process."""

import os
import resource
import weakref
from pathlib import Path
from typing import NamedTuple

import google_crc32c

# Of the limit of the process, which is 1,024 on most machines; the program needs files, too.
_SHARE_OF_LIMIT = 0.5
_MOST_OPEN = 1024
_CHUNK_BYTES = 1 << 20


class FileState(NamedTuple):
    """Facts that the file system tells of a file.

    Attributes:
      device, inode: they differ for two files.
      size_bytes, modified_ns, changed_ns: one of them differs once the file was written to,
        replaced, deleted or renamed, or its hard links or permissions have changed. Anybody can set
        `modified_ns`, and the kernel alone `changed_ns`.
    """

    device: int
    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int

    def is_unchanged_since(self, earlier: "FileState") -> bool:
        """Tells whether the file holds what it held; some mounts number the same file anew."""
        return self[2:] == earlier[2:]


class OpenFile:
    """A file that is open as long as somebody holds this object.

    Another thread may still read from a file when a cache drops it, so nobody else may close it.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, size: int, offset: int) -> bytes:
        """Reads from a place of the file: processes and threads share no position in it."""
        return os.pread(self._descriptor, size, offset)

    def checksum(self) -> tuple[int, int]:
        """Reads the whole file, and returns its size in bytes and its CRC32C."""
        size_bytes = crc32c = 0
        while chunk := self.read(_CHUNK_BYTES, size_bytes):
            size_bytes += len(chunk)
            crc32c = google_crc32c.extend(crc32c, chunk)
        return size_bytes, crc32c

    def fileno(self) -> int:
        """Returns the descriptor, which is open as long as the object is held."""
        return self._descriptor

    def state(self) -> FileState:
        """Returns the state of the file, also of one that was deleted or replaced."""
        status = os.fstat(self._descriptor)
        return FileState(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        )

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):  # it isn't where the file can't be opened
            os.close(self._descriptor)


class OpenFiles:
    """The files that a reader keeps open, by their numbers; they are closed when it ends.

    All readers of the process together keep at most half of the files open that the process may
    open (`ulimit -n`), and at most 1,024. No lock is needed: every operation on the dict is atomic,
    and a child process that is forked at any moment finds nothing locked.
    """

    def __init__(self) -> None:
        self._files: dict[int, OpenFile] = {}
        _READERS[id(self)] = self

    def __len__(self) -> int:
        return len(self._files)

    def get(self, number: int) -> OpenFile | None:
        """Returns a file that is open, None if it isn't."""
        return self._files.get(number)

    def open(self, number: int, path: Path) -> OpenFile:
        """Opens a file, in place of the one that had the number.

        Raises:
          OSError: it can't be opened.
        """
        self._files.pop(number, None)
        _make_room()
        file = self._files[number] = OpenFile(path)
        return file

    def drop_oldest(self) -> None:
        """Drops the file that was opened first.

        Records come in random order, so no file is needed sooner than another.
        """
        for number in list(self._files)[:1]:
            self._files.pop(number, None)


_READERS: "weakref.WeakValueDictionary[int, OpenFiles]" = weakref.WeakValueDictionary()


def _make_room() -> None:
    """Drops files of the reader that has the most until one more may be opened."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_OPEN
    if soft_limit != resource.RLIM_INFINITY:
        most = min(most, max(1, int(soft_limit * _SHARE_OF_LIMIT)))
    readers = [reader for reference in _READERS.valuerefs() if (reader := reference())]
    while sum(map(len, readers)) >= most:
        max(readers, key=len).drop_oldest()
