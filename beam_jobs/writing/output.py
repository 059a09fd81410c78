"""The state of an output directory: empty, being published, finished, or somebody else's."""

import posixpath
from collections.abc import Callable, Mapping
from pathlib import Path

from beam_jobs.errors import BuildError
from beam_jobs.options import Base, BuildOptions, JobOptions
from beam_jobs.prepare.staging import (
    MARKER,
    STAGING,
    Staging,
    is_staging_file,
    remove_if_empty,
)
from beam_jobs.sources.folders import is_system_file
from beam_jobs.storage import files
from beam_jobs.storage.checksums import checksum
from beam_jobs.writing.publication import begun_publication, read_completed
from schemas.excluded import Excluded
from schemas.file_names import (
    COMPLETED,
    TFDS_FEATURES,
    TFDS_INFO,
    centroids_name,
    excluded_name,
    is_dataset_file,
    least_certain_name,
    manifest_name,
    shard_number,
    spellings_name,
)
from schemas.layout_centroids import LayoutCentroids
from schemas.least_certain import LeastCertain
from schemas.manifest import FileChecksum, Generation, Manifest
from schemas.spellings import Spellings
from schemas.statistics import RecordSummary
from schemas.summary_file import read_summary
from schemas.tfds import tfds_files
from schemas.versions import Versions, is_format_1


def read_versions(directory: str) -> Versions:
    """Reads the versions of a dataset directory.

    Raises:
      ValueError: COMPLETED is damaged, or of another format version.
    """
    return Versions.from_bytes(files.read(files.join(directory, COMPLETED)))


def read_manifest(directory: str, version: int | None = None) -> Manifest:
    """Reads the manifest of a version of a dataset directory, None for the newest.

    Raises:
      ValueError: there is no such version, or a file is damaged.
    """
    found = read_versions(directory).find(version)
    data = files.read(files.join(directory, manifest_name(found.number)))
    found.check(data)
    return found.parse(data)


def read_excluded(directory: str, manifest: Manifest) -> Excluded:
    """Reads the records left out of a version of a dataset directory; none if no file lists any.

    Raises:
      ValueError: the file can't be trusted.
      OSError: the file can't be read.
    """
    path = files.join(directory, excluded_name(manifest.version))
    if not files.exists(path):
        return Excluded(dataset_digest=manifest.digest)
    return Excluded.from_json(files.read(path), manifest)


def read_summary_of(directory: str, generation: Generation) -> dict[str, RecordSummary]:
    """Reads the statistics of a generation's records, split by split.

    Raises:
      BuildError: the file is not the one that was written.
      OSError: the file can't be read.
    """
    return read_summary(_read_checked(directory, generation.summary_name, generation.files))


def read_centroids(directory: str, manifest: Manifest) -> LayoutCentroids | None:
    """Reads the centroids of the layouts that a version has; None if its layouts were given.

    Raises:
      BuildError: the file is not the one that was written.
      OSError: the file can't be read.
    """
    data = _read_listed(directory, centroids_name(manifest.version), manifest)
    return None if data is None else LayoutCentroids.from_bytes(data)


def read_least_certain(directory: str, manifest: Manifest) -> LeastCertain | None:
    """Reads the receipts whose layouts are the least certain; None if no file lists any.

    Raises:
      BuildError: the file is not the one that was written.
      OSError: the file can't be read.
    """
    data = _read_listed(directory, least_certain_name(manifest.version), manifest)
    return None if data is None else LeastCertain.from_json(data)


def read_spellings(directory: str, manifest: Manifest) -> Spellings | None:
    """Reads the names that a version has merged into others; None if none were to be merged.

    Raises:
      BuildError: the file is not the one that was written.
      OSError: the file can't be read.
    """
    data = _read_listed(directory, spellings_name(manifest.version), manifest)
    return None if data is None else Spellings.from_json(data)


def _read_listed(directory: str, name: str, manifest: Manifest) -> bytes | None:
    """Reads a file that not all versions have; None if the manifest does not list it."""
    return _read_checked(directory, name, manifest.files) if name in manifest.files else None


def _read_checked(directory: str, name: str, sums: Mapping[str, FileChecksum]) -> bytes:
    path = files.join(directory, name)
    data = files.read(path)
    if checksum(data) != sums[name]:
        raise BuildError(
            f"{path} has another checksum than the manifest says: restore it from a copy"
        )
    return data


def read_base(directory: str) -> tuple[Base, Manifest]:
    """Reads what a build must know of the dataset that it appends to, and its newest manifest.

    Raises:
      BuildError: there is no dataset, or its files are damaged.
    """
    completed = read_completed(directory)
    if completed is None:
        raise BuildError(
            f"{directory} holds no finished dataset to append to: check --output, or build it "
            "without --append"
        )
    try:
        newest = Versions.from_bytes(completed.encode()).newest
        manifest = read_manifest(directory, newest.number)
    except (OSError, ValueError) as error:
        raise BuildError(f"{directory} can't be appended to: {error}") from error
    first_shards = {
        name: max((shard_number(shard.name) for shard in split.shards), default=-1) + 1
        for name, split in manifest.splits.items()
    }
    base = Base(
        directory=directory,
        version=newest.number,
        completed=completed,
        first_shards=first_shards,
    )
    return base, manifest


def write_tfds_files(staging: Staging, launch: str) -> None:
    """Writes what TensorFlow Datasets reads of the newest version, unless it is there."""
    for name, data in tfds_files(read_manifest(staging.output)).items():
        path = files.join(staging.output, name)
        if not files.exists(path) or files.read(path) != data:
            # By way of the staging directory: there the next run deletes what a kill leaves.
            staged = files.join(staging.finished(launch), name)
            files.write(staged, data)
            files.move([(staged, path)])


def delete_unlisted(output: str) -> None:
    """Deletes the files that no version names any more, after versions have ended.

    Files of a later version stay: another job may be about to publish it.
    """
    versions = read_versions(output)
    if not versions.ended:
        return
    listed = {COMPLETED, TFDS_FEATURES, TFDS_INFO}
    for version in versions.versions:
        listed |= read_manifest(output, version.number).file_names
    base, _ = read_base(output)
    root = output.rstrip("/") + "/"
    names = [path.removeprefix(root) for path in files.list_below(output)]
    unlisted = [name for name in names if is_dataset_file(name) and name not in listed]
    deleted = [files.join(output, name) for name in unlisted if base.has(name)]
    files.delete(deleted)
    if files.is_local(output):
        folders = {parent for path in deleted for parent in Path(path).parents}
        for folder in sorted(folders - set(Path(output, "versions").parents), reverse=True):
            remove_if_empty(folder)  # of an ended version


def is_published(options: JobOptions) -> bool:
    """Returns whether a killed job had finished this same request, all but its clean-up."""
    # The note alone may be that of a publication which was killed before its COMPLETED, and
    # COMPLETED alone that of another request.
    begun = begun_publication(options.staging)
    return (
        begun is not None
        and begun.request == options.request
        and begun.completed == read_completed(options.output)
    )


def check_finished(options: BuildOptions) -> None:
    """Raises BuildError if the output is a finished dataset that must not be replaced."""
    if options.base is not None:
        if read_completed(options.base.directory) != options.base.completed:
            raise BuildError(
                f"another build has changed {options.base.directory} since this one began: run the "
                "same command again"
            )
        return
    if files.exists(files.join(options.output, COMPLETED)) and not options.overwrite:
        raise BuildError(
            f"{options.output} holds a finished dataset: add to it with --append, replace it with "
            "--overwrite, or choose another --output"
        )


def check_no_unfinished_build(options: JobOptions) -> None:
    """Raises BuildError if the staging directory holds work that a build could go on with."""
    if files.exists(options.staging.inputs):
        raise BuildError(
            f"{options.staging.directory} holds the work of a build that has not ended: run that "
            "build again, or delete that folder to give it up"
        )


def check_foreign(options: JobOptions) -> None:
    """Raises BuildError if a file in the output directory is one that no build wrote."""
    if is_format_1((read_completed(options.output) or "").encode()):
        raise BuildError(
            f"{options.output} holds a dataset of format version 1: choose another --output, or "
            "delete that dataset"
        )
    check_names(options.staging, is_dataset_file, is_new=options.base is None)


def check_names(staging: Staging, is_own: Callable[[str], bool], *, is_new: bool = True) -> None:
    """Raises BuildError if a file in the output directory is one that no such job wrote.

    Files of systems and network drives, such as .DS_Store, are passed over.

    Args:
      staging: the staging directory of the output.
      is_own: whether a finished job writes a file of this path in the output.
      is_new: whether the job could write to another directory as well.
    """
    output = staging.output
    if files.is_local(output) and Path(staging.directory).is_symlink():
        raise _foreign(output, STAGING, is_new=is_new)
    root = output.rstrip("/") + "/"
    names = [path.removeprefix(root) for path in files.list_below(output)]
    marked = f"{STAGING}/{MARKER}" in names
    for name in names:
        if not (is_own(name) or is_staging_file(name, marked=marked) or is_system_file(name)):
            raise _foreign(output, name, is_new=is_new)


def files_held_open(output: str) -> list[str]:
    """Lists files that NFS keeps since a process of this machine still reads a deleted one."""
    root = output.rstrip("/") + "/"
    names = [path.removeprefix(root) for path in files.list_below(output)]
    return sorted(name for name in names if posixpath.basename(name).startswith(".nfs"))


def _foreign(output: str, name: str, *, is_new: bool) -> BuildError:
    choose = "choose an empty --output, or move" if is_new else "move"
    return BuildError(f"{output} holds {name}, which no build wrote: {choose} that file away")
