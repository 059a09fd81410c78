"""Locks on run folders, so that two trainers don't write the same checkpoints."""

import fcntl
import os
import socket
import sys
from pathlib import Path
from typing import Self

LOCK = "trainer.lock"


class RunFolderInUseError(Exception):
    """Another process trains in the run folder."""


class RunLock:
    """An exclusive lock on a folder; the kernel releases it when the process ends or is killed.

    It is a `flock` on a file. On local file systems and NFS it holds against all processes, also on
    other machines; NFS may need its lease time, about 90 s, to notice that a machine is gone. If
    the file system refuses locks, as some mounts of object stores do, there is no lock, and
    standard error says so. Others of these grant locks that other machines do not see.

    Attributes:
      is_held: False where the file system refuses locks.
    """

    def __init__(self, folder: str, *, name: str = LOCK) -> None:
        """Takes the lock.

        Args:
          folder: the folder.
          name: name of the locked file in it.

        Raises:
          RunFolderInUseError: another process holds the lock.
        """
        # Not truncated, as another process may have written it; writable, as NFS locks no other
        # files exclusively.
        self._file = Path(folder, name).open("a+")  # noqa: SIM115
        self.is_held = True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.seek(0)
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise RunFolderInUseError(
                f"{holder} trains in run folder {folder}: wait until it ends, or choose another "
                "run folder"
            ) from error
        except OSError as error:
            self.is_held = False
            print(
                f"run folder {folder} can't be locked ({error.strerror}): make sure that no other "
                "trainer uses it",
                file=sys.stderr,
            )
            return
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        self._file.flush()

    def release(self) -> None:
        """Gives the lock back; the file stays."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
