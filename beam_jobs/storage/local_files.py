"""Files of this machine, by their very names.

Beam takes the name of a file that it deletes for a pattern: asked to delete `x[1]/file`, it deletes
`x1/file`.
"""

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from beam_jobs.storage.object_stores import FileState, Store

_NO_SUCH_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_CANNOT_SYNC_FOLDERS = (errno.EBADF, errno.EINVAL)


class Local(Store):
    """Paths without a scheme."""

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """The bytes are on the disk before they get their name, so no loss of power halves them."""
        folder, name = os.path.split(path)
        temporary = Path(folder, f".{name}.{uuid.uuid4().hex}.tmp")
        temporary.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                yield file
                # A rename may reach the disk before the bytes do; after a loss of power the name
                # would then stand for an empty file.
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def state(self, path: str) -> FileState | None:
        """The inode's change time is part of the version: no copy or move takes that along."""
        try:
            found = Path(path).stat()
        except OSError as error:
            if error.errno in _NO_SUCH_FILE:
                return None
            raise
        if not stat.S_ISREG(found.st_mode):
            return None
        version = f"{found.st_mtime_ns}-{found.st_ctime_ns}"
        return FileState(size_bytes=found.st_size, version=version)

    def list_below(self, directory: str) -> list[str]:
        return [
            os.path.join(folder, name)
            for folder, _, names in os.walk(directory.rstrip("/") or "/")
            for name in names
        ]

    def delete(self, paths: list[str]) -> None:
        """Deletes files and folders; one that is gone already is no error."""
        for path in map(Path, paths):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def delete_tree(self, directory: str) -> None:
        self.delete([directory])

    def move(self, pairs: list[tuple[str, str]]) -> None:
        """Moves files; the new names are on the disk when it returns."""
        folders = {Path(target).parent for _, target in pairs}
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        for source, target in pairs:
            Path(source).replace(target)
        # Names are on the disk when their folder is: COMPLETED, moved by the next call, must not be
        # there before them.
        for folder in folders:
            _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC_FOLDERS:  # as some network file systems
            raise
    finally:
        os.close(descriptor)
