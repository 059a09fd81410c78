"""Claims on run folders in object stores, which have no locks."""

import os
import socket
import sys
import uuid

import tensorflow as tf

from pipeline.training.run_files import StoreError, StoreFiles, store_errors
from pipeline.training.run_lock import LOCK

_NOBODY = b"nobody\n"


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
