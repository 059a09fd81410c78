"""Folders of this machine, and the files in folders that are no receipts on any file system."""

import os
from collections import deque
from collections.abc import Iterator

from beam_jobs.errors import BuildError

_SYSTEM_FILES = ("", "thumbs.db", "desktop.ini")  # "" names the placeholder of a folder in a store
_PLACEHOLDER_SUFFIX = "_$folder$"  # of Hadoop's placeholders


def is_system_file(path: str) -> bool:
    """Whether a file below a folder is an operating system's or a store's own, and no input.

    Its name or that of a folder around it begins with a dot, or it is Thumbs.db, desktop.ini or
    the placeholder of a folder in an object store.
    """
    *_, name = parts = path.split("/")
    hidden = any(part.startswith(".") for part in parts)
    return hidden or name.lower() in _SYSTEM_FILES or name.endswith(_PLACEHOLDER_SUFFIX)


def local_files_below(root: str) -> Iterator[str]:
    """Yields the path of every file below a folder, also behind links, but of no system file.

    A folder is walked once, by its own name if it has one below `root`, and otherwise by the first
    link to it. So folders that link to each other end.

    Raises:
      BuildError: a folder can't be listed.
    """
    walked: set[str] = set()
    folders = deque([root])
    links: deque[str] = deque()
    while folders or links:
        folder = folders.popleft() if folders else links.popleft()
        real_path = os.path.realpath(folder)
        if real_path in walked:
            continue
        walked.add(real_path)
        for entry in _entries(folder):
            if is_system_file(entry.name):
                continue
            if not _is_folder(entry):
                yield entry.path
            elif entry.is_symlink():
                links.append(entry.path)
            else:
                folders.append(entry.path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise BuildError(
            f"folder {folder} can't be listed: {error}; make it readable, or move it out of the "
            "input"
        ) from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, say: reading it will tell
        return False
