"""Files of a run folder: on a file system of this machine, or objects of a store."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import tensorflow as tf

from pipeline.records.files import is_remote

STORES = ("gs", "s3")
# TensorFlow's client of gs:// trusts the size of an object for 5 s, and can't read it when another
# process has written it anew meanwhile.
_STALE_S = 7


class StoreError(Exception):
    """An object store refuses what a run asks for, or can't be reached."""


class RunFiles(Protocol):
    """Files by name, in a folder."""

    def read(self, name: str) -> bytes | None:
        """Reads a whole file; returns None if there is none."""

    def replace(self, name: str, data: bytes) -> None:
        """Writes a file; a kill leaves the old one or the new one."""

    def append(self, name: str, data: bytes) -> None:
        """Adds to the end of a file."""

    def flush(self) -> None:
        """Makes sure that what was appended is written."""


class LocalFiles:
    """Files on a file system of this machine."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def read(self, name: str) -> bytes | None:
        """Reads a whole file; returns None if there is none."""
        path = self._folder / name
        return path.read_bytes() if path.exists() else None

    def replace(self, name: str, data: bytes) -> None:
        """Writes a file beside the old one, and puts it in its place."""
        partial = self._folder / f"{name}.partial"
        partial.write_bytes(data)
        partial.replace(self._folder / name)

    def append(self, name: str, data: bytes) -> None:
        """Adds to the end of a file."""
        with (self._folder / name).open("ab") as file:
            file.write(data)

    def flush(self) -> None:
        """Does nothing: `append` has written it."""


class StoreFiles:
    """Objects of a store.

    Objects are written as a whole or not at all, and none can grow. What is appended is kept here,
    and `flush` writes the object anew: small beside the checkpoint that is written at that time.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._appended: dict[str, bytearray] = {}
        self._unwritten: set[str] = set()

    def read(self, name: str) -> bytes | None:
        """Reads a whole object, with what was appended; returns None if there is none.

        Raises:
          StoreError: the store can't be read.
        """
        if name in self._appended:
            return bytes(self._appended[name])
        path = os.path.join(self._folder, name)
        try:
            with store_errors(self._folder):
                return _read(path)
        except tf.errors.NotFoundError:
            return None

    def replace(self, name: str, data: bytes) -> None:
        """Writes an object.

        Raises:
          StoreError: the store can't be written to.
        """
        path = os.path.join(self._folder, name)
        with store_errors(self._folder, missing=True), tf.io.gfile.GFile(path, "wb") as file:
            file.write(data)

    def append(self, name: str, data: bytes) -> None:
        """Adds to the end of an object, which `flush` writes."""
        if name not in self._appended:
            self._appended[name] = bytearray(self.read(name) or b"")
        self._appended[name] += data
        self._unwritten.add(name)

    def flush(self) -> None:
        """Writes the objects to which something was appended.

        Raises:
          StoreError: the store can't be written to.
        """
        for name in sorted(self._unwritten):
            self.replace(name, bytes(self._appended[name]))
        self._unwritten.clear()


@contextmanager
def store_errors(folder: str, *, missing: bool = False) -> Iterator[None]:
    """Tells errors of an object store from those of TensorFlow.

    Args:
      folder: the run folder; if it is local, this does nothing.
      missing: something that is not there is an error, too: the bucket.

    Raises:
      StoreError: the store refuses or can't be reached.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if not is_remote(folder) or not isinstance(error, _errors(missing)):
            raise
        reason = " ".join(error.message.split()).rstrip(".")
        raise StoreError(
            f"run folder {folder} can't be reached ({reason}): check the bucket, the credentials "
            "and the network"
        ) from error


def _errors(missing: bool) -> tuple[type[tf.errors.OpError], ...]:
    errors = (
        tf.errors.AbortedError,
        tf.errors.DeadlineExceededError,
        tf.errors.FailedPreconditionError,
        tf.errors.PermissionDeniedError,
        tf.errors.UnauthenticatedError,
        tf.errors.UnavailableError,
        tf.errors.UnknownError,
    )
    return (*errors, tf.errors.NotFoundError) if missing else errors


def _read(path: str) -> bytes:
    """Reads an object, which another process may just have written anew."""
    deadline = time.monotonic() + _STALE_S
    while True:
        try:
            with tf.io.gfile.GFile(path, "rb") as file:
                data: bytes = file.read()
                return data
        except tf.errors.InternalError as error:
            if "inconsistent" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(1)
