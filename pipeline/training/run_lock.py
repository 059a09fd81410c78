"""Locks on run folders, so that two trainers don't write the same checkpoints."""

import fcntl
import os
import socket
import sys
import uuid
from pathlib import Path
from typing import Self

import tensorflow as tf

from pipeline.training.run_files import StoreError, StoreFiles, store_errors

LOCK = "trainer.lock"
_NOBODY = b"nobody\n"


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


class RunClaim:
    """A claim on a run folder in an object store, which has no locks.

    Whoever comes last has it: a process that was killed leaves a claim that nobody can tell from
    that of one that runs. So each process writes its name into an object when it begins, and looks
    before it writes a checkpoint whether there is another name now. What it writes between that
    look and the end of the checkpoint is not guarded.
    """

    def __init__(self, folder: str) -> None:
        """Takes the claim, and tells on standard error whose it was.

        Raises:
          StoreError: the store refuses or can't be reached.
        """
        self._files = StoreFiles(folder)
        name = f"process {os.getpid()} on {socket.gethostname()}"
        self._own = f"{name} {uuid.uuid4()}\n".encode()
        before = self._files.read(LOCK)
        self._files.replace(LOCK, self._own)
        # tensorflow-io takes a refusal for an empty folder, in which a run would begin anew.
        with store_errors(folder, missing=True):
            if not tf.io.gfile.glob(os.path.join(folder, LOCK)):
                raise StoreError(
                    f"run folder {folder} can be written to, but not listed: allow that, too "
                    "(on S3, s3:ListBucket)"
                )
        if before not in (None, _NOBODY):
            print(
                f"{_name_in(before)} has trained in run folder {folder} and has not come to an "
                "end: if it still runs, it ends before its next checkpoint",
                file=sys.stderr,
            )

    def is_lost(self) -> bool:
        """Tells whether another process has the claim now."""
        # None may be an error of the store, which the next write tells of.
        return self._files.read(LOCK) not in (None, self._own)

    def release(self) -> None:
        """Gives the claim back, unless another process has it."""
        # Not by removing it: a process that lost the claim must still find that.
        if not self.is_lost():
            self._files.replace(LOCK, _NOBODY)


def _name_in(claim: bytes | None) -> str:
    return (claim or b"").decode(errors="replace").strip().rpartition(" ")[0] or "another process"
