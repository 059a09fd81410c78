"""Folders of images, with a subfolder for each layout, on any file system."""

import os
from collections import deque
from collections.abc import Callable, Iterator

from apache_beam.metrics import Metrics

from beam_jobs.errors import BuildError
from beam_jobs.sources.row import Row, make_row
from beam_jobs.sources.store_folders import entries, files_below
from beam_jobs.storage import files

# In lower case. "" names the placeholder of a folder in a store.
_SYSTEM_FILES = frozenset(
    (
        *("", "thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini", "autorun.inf"),
        *("icon\r", "picasa.ini", "zbthumbnail.info", "pspbrwse.jbf", "desktop db", "desktop df"),
    )
)
_SYSTEM_FOLDERS = frozenset(
    (
        *("@eadir", "@tmp", "#recycle", "#snapshot"),  # of Synology
        *("@recycle", "@recently-snapshot", "@__thumb"),  # of QNAP
        *("$recycle.bin", "recycler", "recycled", "system volume information"),  # of Windows
        *("__macosx", "network trash folder", "temporary items"),  # of macOS
        *("lost+found", "lost.dir", "~snapshot"),  # of Linux, Android and NetApp
    )
)
_PLACEHOLDER_SUFFIX = "_$folder$"  # of Hadoop's placeholders
_SYSTEM_SUFFIXES = (_PLACEHOLDER_SUFFIX, "@SynoEAStream", "@SynoResource")  # of Synology
SKIPPED_SYSTEM_FILES = "skipped_system_files"  # the counter of system files and folders
_skipped = Metrics.counter("tillroll", SKIPPED_SYSTEM_FILES)


def folder_parts(folder: str) -> Iterator[str]:
    """Yields what workers may list apart: in a store, all that lies directly in the folder."""
    if files.is_local(folder):
        yield folder
    else:
        yield from entries(files.join(folder, ""))


def folder_rows(
    part: str, *, folder: str, images_only: bool = False, layout: str | None = None
) -> Iterator[Row]:
    """Yields the rows of the files in a part of a folder, except those of system files.

    Each system file, or folder of them, counts in `SKIPPED_SYSTEM_FILES`.

    Raises:
      BuildError: a folder can't be listed.
    """
    # Beam would read no link to a local folder, and would not say so.
    local = files.is_local(part)
    paths = (
        local_files_below(part.rstrip("/") or "/", on_skipped=_count)
        if local
        else files_below(part)
    )
    for path in paths:
        if is_input(below(path, folder)):
            yield folder_row(path, folder=folder, images_only=images_only, layout=layout)


def is_input(path: str) -> bool:
    """Returns whether a file below a folder is an input, and counts it if a system made it."""
    if is_system_file(path):
        _count(path)
        return False
    return True


def _count(path: str) -> None:
    if path and not path.endswith(("/", _PLACEHOLDER_SUFFIX)):  # these say that a folder is there
        _skipped.inc()


def folder_row(
    path: str, *, folder: str, images_only: bool = False, layout: str | None = None
) -> Row:
    """Returns the row of one file: its path below the folder is its id.

    The first subfolder is its layout, unless `layout` is that of all files: in the folder `in`,
    `in/aldi/2024/1.jpg` is the receipt `aldi/2024/1.jpg` of the layout `aldi`.
    """
    id_ = below(path, folder)
    subfolder, slash, _ = id_.partition("/")
    return make_row(
        id_=id_,
        uri=path,
        layout=(subfolder if slash else "") if layout is None else layout,
        raw_labels={},
        labels=(),
        source=id_,
        needs_layout=not images_only and layout is None,
    )


def below(path: str, folder: str) -> str:
    """Returns a path relative to the folder that it lies in."""
    return path.removeprefix(folder.rstrip("/") + "/")


def is_system_file(path: str) -> bool:
    """Returns whether a file below a folder belongs to a system or a store, and is not an input.

    Its name or that of a folder around it begins with a dot or is one that a system, a NAS or a
    store gives, such as Thumbs.db and @eaDir.
    """
    *_, name = parts = path.split("/")
    return (
        any(part.startswith(".") or part.lower() in _SYSTEM_FOLDERS for part in parts)
        or name.lower() in _SYSTEM_FILES
        or name.endswith(_SYSTEM_SUFFIXES)
    )


def local_files_below(
    root: str, *, on_skipped: Callable[[str], None] = lambda path: None
) -> Iterator[str]:
    """Yields the path of every file below a local folder, also behind links; no system files.

    `on_skipped` is called with the name of each system file or folder.

    A folder is walked once, by its own name if it has one below `root`, and otherwise by the first
    link to it. So the walk ends where folders link to each other.

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
        for entry in _local_entries(folder):
            if is_system_file(entry.name):
                on_skipped(entry.name)
                continue
            if not _is_folder(entry):
                yield entry.path
            elif entry.is_symlink():
                links.append(entry.path)
            else:
                folders.append(entry.path)


def _local_entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as scanned:
            return sorted(scanned, key=lambda entry: entry.name)
    except OSError as error:
        raise BuildError(
            f"folder {folder} can't be listed: {error}; make it readable, or move it out of the "
            "input"
        ) from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, for example: the error comes when the file is read
        return False
