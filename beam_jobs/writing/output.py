"""The state of an output directory: empty, being published, finished, or somebody else's."""

from pathlib import Path

from beam_jobs.errors import BuildError
from beam_jobs.options import BuildOptions
from beam_jobs.prepare.staging import MARKER, STAGING, is_staging_file
from beam_jobs.storage import files
from beam_jobs.writing.publication import begun_publication, read_completed
from schemas.file_names import COMPLETED, is_dataset_file, manifest_name
from schemas.manifest import Manifest
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


def is_published(options: BuildOptions) -> bool:
    """Returns whether a killed build had finished this same request, all but its clean-up.

    Never for an overwriting build: the request does not cover the inputs, and a replacement is to
    be made from the inputs as they are now.
    """
    # The note alone may be that of a publication which was killed before its COMPLETED, and
    # COMPLETED alone that of another request.
    begun = begun_publication(options.staging)
    return (
        not options.overwrite
        and begun is not None
        and begun.request == options.request
        and begun.completed == read_completed(options.output)
    )


def check_finished(options: BuildOptions) -> None:
    """Raises BuildError if the output is a finished dataset that must not be replaced."""
    if files.exists(files.join(options.output, COMPLETED)) and not options.overwrite:
        raise BuildError(
            f"{options.output} holds a finished dataset: choose another --output, or replace it "
            "with --overwrite"
        )


def check_foreign(options: BuildOptions) -> None:
    """Raises BuildError if a file in the output directory is one that no build wrote."""
    if is_format_1((read_completed(options.output) or "").encode()):
        raise BuildError(
            f"{options.output} holds a dataset of format version 1: choose another --output, or "
            "delete that dataset"
        )
    staging = options.staging.directory
    if files.is_local(staging) and Path(staging).is_symlink():
        raise _foreign(options.output, STAGING)
    root = options.output.rstrip("/") + "/"
    names = [path.removeprefix(root) for path in files.list_below(options.output)]
    marked = f"{STAGING}/{MARKER}" in names
    for name in names:
        if not is_dataset_file(name) and not is_staging_file(name, marked=marked):
            raise _foreign(options.output, name)


def _foreign(output: str, name: str) -> BuildError:
    return BuildError(
        f"{output} holds {name}, which no build wrote: choose an empty --output, or move that file "
        "away"
    )
