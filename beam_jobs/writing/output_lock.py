"""One build at a time writes to an output directory."""

import errno
import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from beam_jobs.errors import BuildError
from beam_jobs.prepare.staging import (
    Staging,
    delete_leftovers,
    is_temporary,
    remove_if_empty,
    this_process,
)

# Network file systems may have no locks. There only the protocol of `publication` protects.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


@contextmanager
def output_lock(staging: Staging) -> Iterator[None]:
    """Holds the lock of a local output directory, and marks its staging directory as a build's.

    The system releases the lock when this process ends, however it ends. Files of a killed build
    that can't be used again are deleted at the start, an unused staging directory at the end.

    Raises:
      BuildError: another process builds here, or files can't be written and renamed here.
    """
    directory, folder = Path(staging.output), Path(staging.directory)
    existed = directory.exists()
    try:
        lock = _acquire(Path(staging.marker), staging.output)
        try:
            _check_rename(folder, directory)
            delete_leftovers(staging)
        except OSError:
            os.close(lock)
            raise
    except OSError as error:
        raise _unwritable(staging.output, error) from error
    try:
        yield
    finally:
        with suppress(OSError):  # of a full or failing disk; the next build deletes them
            delete_leftovers(staging)
        _remove_if_unused(staging)
        if not existed:
            remove_if_empty(directory)
        os.close(lock)


def make_folder(folder: Path, output: str) -> None:
    """Makes a folder below an output directory.

    Raises:
      BuildError: the output can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(output, error) from error


def _unwritable(output: str, error: OSError) -> BuildError:
    return BuildError(
        f"{output} can't be written: {error.strerror}: {error.filename}; choose another --output, "
        "or make this one a folder that you may write to"
    )


def _acquire(marker: Path, output: str) -> int:
    """Opens and locks the marker; returns its file descriptor."""
    while True:
        marker.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(marker, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # the process before has just removed the folder
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 1000).decode().strip() or "another process"
            os.close(descriptor)
            raise BuildError(
                f"{output} is being built by {holder}: wait until that build ends, or choose "
                "another --output"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        # The process before may have removed the marker since it was opened: its lock is void.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), marker.stat()):
                # The file is never replaced: a lock is on the file, and not on its name.
                os.ftruncate(descriptor, 0)
                os.write(descriptor, this_process())
                return descriptor
        os.close(descriptor)


def _check_rename(staging: Path, output: Path) -> None:
    """Moves and deletes an empty file as publishing will do, before any image is read."""
    for left in output.glob(".probe.*.tmp"):  # by a run that was killed between the two
        if is_temporary(left.name):
            left.unlink()
    name = f".probe.{uuid.uuid4().hex}.tmp"
    (staging / name).touch()
    (staging / name).replace(output / name)
    (output / name).unlink()


def _remove_if_unused(staging: Staging) -> None:
    """Removes a staging directory that holds nothing but the marker."""
    directory, marker = Path(staging.directory), Path(staging.marker)
    if any(path.is_file() and path != marker for path in directory.rglob("*")):
        return
    folders = [path for path in directory.rglob("*") if path.is_dir()]
    marker.unlink(missing_ok=True)
    for folder in [*sorted(folders, reverse=True), directory]:
        remove_if_empty(folder)
