"""The state of an output directory: empty, being published, finished, or somebody else's."""

from beam_jobs import files
from beam_jobs.errors import BuildError
from beam_jobs.options import BuildOptions
from schemas.manifest import COMPLETED, MANIFEST, Manifest, is_dataset_file

_BEGUN = "publishing-"


def read_manifest(directory: str) -> Manifest:
    """The manifest of a dataset directory."""
    return Manifest.from_json(files.read(files.join(directory, MANIFEST)))


def begun_name(digest: str) -> str:
    """Staging file that tells that the dataset with this digest is being moved into place.

    It holds the request that the dataset answers.
    """
    return f"{_BEGUN}{digest}"


def delete_staging(staging: str) -> None:
    """Deletes a staging directory, what tells of a publication last: a kill may come between."""
    paths = files.list_below(staging)
    if work := [path for path in paths if not path.rpartition("/")[2].startswith(_BEGUN)]:
        files.delete(work)
    files.delete_tree(staging)


def dataset_files(directory: str) -> list[str]:
    """Paths below a directory that a build may have written."""
    root = directory.rstrip("/") + "/"
    paths = files.list_below(directory)
    return sorted(path for path in paths if is_dataset_file(path.removeprefix(root)))


def is_published(options: BuildOptions) -> bool:
    """Whether a killed build had answered this very request, all but for its clean-up."""
    completed = files.join(options.output, COMPLETED)
    if not files.exists(completed):
        return False
    begun = files.join(options.staging, begun_name(files.read(completed).decode().strip()))
    return files.exists(begun) and files.read(begun).decode() == options.request


def check_output(options: BuildOptions) -> None:
    """Refuses to harm anything.

    Raises:
      BuildError: the output is a finished dataset that must not be replaced, or holds a file
        that no build wrote.
    """
    if files.exists(files.join(options.output, COMPLETED)) and not options.overwrite:
        if not files.list_below(options.staging):
            files.delete_tree(options.staging)  # a kill left the folders of finished work
        raise BuildError(
            f"{options.output} holds a finished dataset: choose another --output, or replace it "
            "with --overwrite"
        )
    ours = set(dataset_files(options.output))
    if foreign := [path for path in files.list_below(options.output) if path not in ours]:
        raise BuildError(
            f"{options.output} holds {foreign[0]}, which no build wrote: choose an empty --output"
        )
