"""The staging directory: the unfinished work of a build, inside the output directory.

It lies inside because a build then writes and deletes nothing outside its output, and because
finished files can be renamed into place even where the output is a volume of its own. Readers skip
names that begin with an underscore.

What makes a directory a build's is the marker together with the names: a file that does not fit in
is never deleted, the build is refused.
"""

import os
import re
import shutil
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from beam_jobs.errors import BuildError
from beam_jobs.storage import files

STAGING = "_staging"
MARKER = "BUILD"
_INPUTS = "inputs.json"
_ROWS = "rows"
_HASHES = "hashes"
_PREPARED = "prepared"
_BEGUN, _RECORDS, _SIDECAR = ".begun", ".tfrecord", ".npz"
_REFERENCES = "references"
_LAYOUTS = "layouts"
_NEAR_DUPLICATES = "near-duplicates"
_PLAN = "plan.json"
_STARTS = "starts"
_FINISHED = "finished-"
_PUBLISHING = "publishing"
_REPORT = "report.json"
_DRY_RUN = "dry-run-"

_SHA256, _DIGEST, _LAUNCH = "[0-9a-f]{64}", "[0-9a-f]{32}", "[0-9a-f]{32}"
_TEMPORARY = re.compile(r"(.*/)?\.[^/]+\.[0-9a-f]{32}\.tmp")  # of `files.create`
# Names with a hash can't be anybody else's. A job that was staged (a Dataflow template) writes
# rows before it can check anything, so these may be there before the marker.
_UNMISTAKABLE = re.compile(rf"{STAGING}/({_ROWS}/{_SHA256}|{_DRY_RUN}{_LAUNCH}/.+)")
_MARKED = re.compile(
    rf"{STAGING}/({MARKER}|{re.escape(_INPUTS)}|{re.escape(_PLAN)}|{_STARTS}|{_PUBLISHING}"
    rf"|{re.escape(_REPORT)}"
    rf"|{_PREPARED}/\d{{7,}}-{_DIGEST}({'|'.join(map(re.escape, (_BEGUN, _RECORDS, _SIDECAR)))})"
    rf"|({_REFERENCES}|{_LAYOUTS}|{_NEAR_DUPLICATES}|{_HASHES})/{_SHA256}|{_FINISHED}{_LAUNCH}/.+)"
)


@dataclass(frozen=True)
class Staging:
    """Paths in the staging directory of the directory `output`.

    Steps of the job go by their labels (`beam_jobs.job`); N is a chunk, DIGEST that of what made
    it. Where nothing stands under "deleted", a file stays until the dataset is published.

        OUTPUT/_staging/              written by    read by                    deleted
          BUILD                       launcher      next build                 last of all
          inputs.json                 CheckInputs   progress bar
          rows/SHA256                 WriteRows     Prepare
          hashes/SHA256               HashIds,      FindIds,
                                      Prepare       FindPixels
          prepared/N-DIGEST.begun     Prepare       Prepare, tried again
          prepared/N-DIGEST.tfrecord  Prepare       WriteShard, Quarantine
          prepared/N-DIGEST.npz       Prepare       next build, progress bar
          references/SHA256           Prepare       Plan, Deal
          layouts/SHA256              Prepare,      Sample, Cluster,
                                      Sample,       AssignLayouts,
                                      Cluster,      Publish, a later
                                      Describe…     DescribeRecords
          near-duplicates/SHA256      Prepare,      Compare, Unite,
                                      OldByWord,    Regroup
                                      Compare,
                                      Unite
          plan.json                   Plan          progress bar, dry run
          starts                      Plan          Deal
          finished-LAUNCH/NAME        WriteShard    Publish: to OUTPUT/NAME    by the next launch
          report.json                 Publish       launcher of a forgetting   by the launcher
          publishing                  Publish       next build                 last but one
          dry-run-LAUNCH/_staging/... dry run       dry run                    at its end
          .../.NAME.HEX.tmp           files.create  nobody: becomes NAME       by the next launch

    Names stay as they are: a build must find what one of an older version has left.
    """

    output: str

    @property
    def directory(self) -> str:
        return files.join(self.output, STAGING)

    @property
    def marker(self) -> str:
        """File that makes the directory a build's: it names the process, which holds its lock."""
        return self._path(MARKER)

    @property
    def inputs(self) -> str:
        """Number of rows of the source, as JSON; with it, there is work to resume."""
        return self._path(_INPUTS)

    def rows(self, sha256: str) -> str:
        """Rows on their way to their chunk (`RowFile`), named by their contents."""
        return self._path(_ROWS, sha256)

    def hashes(self, sha256: str) -> str:
        """Hashes to be looked for in the dataset that is appended to (`known`)."""
        return self._path(_HASHES, sha256)

    def begun(self, chunk: int, digest: bytes) -> str:
        """Note that a worker began to prepare a chunk; digests have 16 bytes."""
        return self._chunk(chunk, digest) + _BEGUN

    def records(self, chunk: int, digest: bytes) -> str:
        """Records of a prepared chunk, accepted and rejected."""
        return self._chunk(chunk, digest) + _RECORDS

    def sidecar(self, chunk: int, digest: bytes) -> str:
        """Facts about a prepared chunk (`PreparedChunk`), written when its records are whole."""
        return self._chunk(chunk, digest) + _SIDECAR

    def list_sidecars(self) -> list[str]:
        """Lists the sidecars of all prepared chunks."""
        paths = files.list_below(self._path(_PREPARED))
        return [path for path in paths if path.endswith(_SIDECAR)]

    def references(self, sha256: str) -> str:
        """References to the records of a bucket (`References`), named by their contents."""
        return self._path(_REFERENCES, sha256)

    def layouts(self, sha256: str) -> str:
        """Descriptors, and centroids of layouts (`find_layouts`), named by their contents.

        Descriptors of the records of a shard are named by what they are made from.
        """
        return self._path(_LAYOUTS, sha256)

    def near_duplicates(self, sha256: str) -> str:
        """Receipts' numbers, and decisions (`find_near_duplicates`), named by their contents."""
        return self._path(_NEAR_DUPLICATES, sha256)

    @property
    def plan(self) -> str:
        """Layouts, counts and numbers of shards, as JSON."""
        return self._path(_PLAN)

    @property
    def starts(self) -> str:
        """`BucketStarts` of all buckets, one after the other."""
        return self._path(_STARTS)

    def finished(self, launch: str) -> str:
        """Folder with the files of the dataset that one launch of the build makes."""
        return self._path(_FINISHED + launch)

    @property
    def publishing(self) -> str:
        """Note of the publication that is moving files into the output directory."""
        return self._path(_PUBLISHING)

    @property
    def report(self) -> str:
        """Numbers of what was forgotten, as JSON."""
        return self._path(_REPORT)

    def dry_run(self, launch: str) -> str:
        """Folder that takes the place of the output directory in a dry run."""
        return self._path(_DRY_RUN + launch)

    def _chunk(self, number: int, digest: bytes) -> str:
        return self._path(_PREPARED, f"{number:07d}-{digest.hex()}")

    def _path(self, *names: str) -> str:
        return files.join(self.directory, *names)


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


def write_marker(staging: Staging) -> None:
    """Marks a staging directory as a build's, unless the process that launched it did.

    Raises:
      BuildError: nothing can be written there.
    """
    try:
        if not files.exists(staging.marker):
            files.write(staging.marker, this_process())
    except BuildError:
        raise
    except Exception as error:  # each file system raises its own kind of error
        raise BuildError(
            f"{staging.directory} can't be written: {error!r}; check that the bucket exists and "
            "that your credentials allow writing to it, or choose another --output"
        ) from error


def this_process() -> bytes:
    """Contents of the marker."""
    return f"process {os.getpid()} on {socket.gethostname()}\n".encode()


def delete_staging(staging: Staging) -> None:
    """Deletes a staging directory after its work is published.

    A kill may come at any point, so the order matters: work first, then the note which dataset
    was published, then the marker. On a local file system marker and folder stay for the launching
    process, which holds a lock on the marker (`output_lock`).
    """
    paths = files.list_below(staging.directory)
    files.delete([path for path in paths if path not in (staging.publishing, staging.marker)])
    files.delete([path for path in paths if path == staging.publishing])
    if files.is_local(staging.directory):
        for entry in Path(staging.directory).iterdir() if paths else ():
            if entry.is_dir():
                shutil.rmtree(entry)
    else:
        files.delete_tree(staging.directory)


def delete_leftovers(staging: Staging) -> None:
    """Deletes what no later build can use: finished files of other launches, temporary files."""
    folder = Path(staging.directory)
    for finished in folder.glob(f"{_FINISHED}*"):
        shutil.rmtree(finished)
    for path in list(folder.rglob(".*.tmp")):
        if is_temporary(path.name):
            path.unlink()


def remove_if_empty(folder: Path) -> None:
    """Removes a local folder unless it holds anything."""
    with suppress(OSError):
        folder.rmdir()
