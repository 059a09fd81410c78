"""Folders of object stores and HDFS, listed a level at a time and page by page.

Beam lists everything below a folder by one request after the other, and keeps it all in memory.
Here the subfolders of an input are listed separately, so that many workers can share them, and only
one page is kept at a time.
"""

from collections.abc import Iterator
from http import HTTPStatus

from beam_jobs.errors import BuildError
from beam_jobs.storage import files
from beam_jobs.storage.object_stores import http_status


def files_below(path: str) -> Iterator[str]:
    """Yields the path of every file below a folder, or of a file itself.

    Args:
      path: as `entries` gives it: that of a folder ends in a slash.

    Raises:
      BuildError: a folder can't be listed.
    """
    if not path.endswith("/"):
        yield path
        return
    for entry in entries(path):
        yield from files_below(entry)


def entries(folder: str) -> Iterator[str]:
    """Yields the paths of the files and folders in a folder; those of folders end in a slash.

    A folder that is not there is empty. The empty object that stands for a folder in some stores is
    no entry of it.

    Args:
      folder: ends in a slash.

    Raises:
      BuildError: the folder can't be listed.
    """
    try:
        for entry in files.entries(folder):
            if entry != folder:
                yield entry
    except BuildError:
        raise
    except Exception as error:  # each client raises its own kind of error
        if http_status(error) == HTTPStatus.NOT_FOUND:
            return
        raise BuildError(
            f"folder {folder} can't be listed: {error!r}; check that it exists and that its store "
            "lets you list it, and run the same command again"
        ) from error
