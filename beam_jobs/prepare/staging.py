"""The staging directory: the unfinished work of a build, inside the output directory.

It lies inside because a build then writes and deletes nothing outside its output, and because
finished files can be renamed into place even where the output is a volume of its own:

    OUTPUT/_staging/
      BUILD                    marker: a build made this directory; names the process; its lock
      inputs.json              number of rows
      rows/SHA256              rows on their way to their chunk
      prepared/CHUNK-DIGEST.*  prepared chunks: records (.tfrecord), facts about them (.npz), and
                               the note that a worker has begun them (.begun)
      references/SHA256        references to the records of a bucket of chunks
      plan.json, starts        the plan, and the numbers at which each bucket starts
      finished-LAUNCH/...      files of the dataset, named as they will be in OUTPUT
      publishing               the publication that is moving files into OUTPUT
      dry-run-LAUNCH/...       what a dry run writes, deleted at its end

Readers skip names that begin with an underscore. What makes a directory a build's is the marker
together with the names: a file that does not fit in is never deleted, the build is refused.
"""

import os
import re
import shutil
import socket
from contextlib import suppress
from pathlib import Path

from beam_jobs.errors import BuildError
from beam_jobs.storage import files

STAGING = "_staging"
MARKER = "BUILD"
PUBLISHING = "publishing"
_FINISHED = "finished-"
_DRY_RUN = "dry-run-"

_TEMPORARY = re.compile(r"(.*/)?\.[^/]+\.[0-9a-f]{32}\.tmp")  # of `files.create`
# Names with a hash can't be anybody else's. A job that was staged (a Dataflow template) writes
# rows before it can check anything, so these may be there before the marker.
_UNMISTAKABLE = re.compile(rf"{STAGING}/(rows/[0-9a-f]{{64}}|{_DRY_RUN}[0-9a-f]{{32}}/.+)")
_MARKED = re.compile(
    rf"{STAGING}/({MARKER}|{PUBLISHING}|inputs\.json|plan\.json|starts|references/[0-9a-f]{{64}}"
    rf"|prepared/\d{{7,}}-[0-9a-f]{{32}}\.(tfrecord|npz|begun)|{_FINISHED}[0-9a-f]{{32}}/.+)"
)


def is_temporary(name: str) -> bool:
    """Returns whether a path is that of a file which was being written when its writer ended."""
    return _TEMPORARY.fullmatch(name) is not None


def is_staging_file(name: str, *, marked: bool) -> bool:
    """Returns whether a build writes a file of this name.

    Args:
      name: path relative to the output directory.
      marked: whether the staging directory holds the marker.
    """
    strict = is_temporary(name) or _UNMISTAKABLE.fullmatch(name) is not None
    return strict or (marked and _MARKED.fullmatch(name) is not None)


def write_marker(staging: str) -> None:
    """Marks a staging directory as a build's, unless the process that launched it did.

    Raises:
      BuildError: nothing can be written there.
    """
    marker = files.join(staging, MARKER)
    try:
        if not files.exists(marker):
            files.write(marker, this_process())
    except BuildError:
        raise
    except Exception as error:  # each file system raises its own kind of error
        raise BuildError(
            f"{staging} can't be written: {error!r}; check that the bucket exists and that your "
            "credentials allow writing to it, or choose another --output"
        ) from error


def this_process() -> bytes:
    """Contents of the marker."""
    return f"process {os.getpid()} on {socket.gethostname()}\n".encode()


def finished_directory(staging: str, launch: str) -> str:
    """Path of the folder for the finished files of one launch of the build."""
    return files.join(staging, _FINISHED + launch)


def dry_run_directory(staging: str, launch: str) -> str:
    """Path of the folder that takes the place of the output directory in a dry run."""
    return files.join(staging, _DRY_RUN + launch)


def delete_staging(staging: str) -> None:
    """Deletes a staging directory after its work is published.

    A kill may come at any point, so the order matters: work first, then the note which dataset
    was published, then the marker. On a local file system marker and folder stay for the launching
    process, which holds a lock on the marker (`output_lock`).
    """
    publishing, marker = (files.join(staging, name) for name in (PUBLISHING, MARKER))
    paths = files.list_below(staging)
    files.delete([path for path in paths if path not in (publishing, marker)])
    files.delete([path for path in paths if path == publishing])
    if files.is_local(staging):
        for entry in Path(staging).iterdir() if paths else ():
            if entry.is_dir():
                shutil.rmtree(entry)
    else:
        files.delete_tree(staging)


def delete_leftovers(staging: Path) -> None:
    """Deletes what no later build can use: finished files of other launches, temporary files."""
    for folder in staging.glob(f"{_FINISHED}*"):
        shutil.rmtree(folder)
    for path in list(staging.rglob(".*.tmp")):
        if is_temporary(path.name):
            path.unlink()


def remove_if_empty(folder: Path) -> None:
    """Removes a local folder unless it holds anything."""
    with suppress(OSError):
        folder.rmdir()
