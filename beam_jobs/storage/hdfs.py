"""HDFS, where Beam's own file system for it falls short.

Beam's match sees one level of folders and takes folders for files, its rename fails where the
target is there, and its exists takes any refusal for a file that is not there.
"""

import posixpath
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.filesystems import FileSystems

from beam_jobs.errors import BuildError
from beam_jobs.storage.object_stores import FileState, Store, for_each, literal_prefix

# Exceptions by which a file is at fault: the client gives their name, but no HTTP status.
_STATUS = {
    "FileNotFoundException": HTTPStatus.NOT_FOUND,
    "AccessControlException": HTTPStatus.FORBIDDEN,
    "IllegalArgumentException": HTTPStatus.BAD_REQUEST,
    "InvalidPathException": HTTPStatus.BAD_REQUEST,
}


def status(error: Exception) -> int | None:
    """Returns the HTTP status behind a client's error, None unless a file is at fault."""
    return _STATUS.get(str(getattr(error, "exception", None)))


def _client_and_name(path: str) -> tuple[Any, str]:
    """Returns the client that Beam's file system keeps to itself, and HDFS's name of a path."""
    # Private: Beam's file system has the one client with the job's host and user, and `_parse_url`
    # alone knows whether paths name a server (--hdfs_full_urls).
    file_system = FileSystems.get_filesystem(path)
    _, name = file_system._parse_url(path)
    return file_system._hdfs_client, name


def _rename_over(client: Any, old_name: str, new_name: str) -> Any:
    """Renames as the client's `rename` does, with an option of HDFS that it does not offer."""
    # Private: the client's public `rename` takes no options. To delete the target first would leave
    # no file of its name if the build were killed in between.
    return client._rename(old_name, destination=new_name, renameoptions="OVERWRITE")


class Hdfs(Store):
    """`hdfs://`."""

    def exists(self, path: str) -> bool:
        return _file_status(path) is not None

    def state(self, path: str) -> FileState | None:
        found = _file_status(path)
        if found is None or found["type"] != "FILE":
            return None
        version = f"{found.get('fileId')}-{found['modificationTime']}"  # HttpFS gives no fileId
        return FileState(size_bytes=found["length"], version=version)

    def delete(self, paths: list[str]) -> None:
        for_each(lambda path: FileSystems.delete([path]), paths)

    def delete_tree(self, directory: str) -> None:
        """One request deletes a folder with all that is in it."""
        if self.exists(directory):
            self.delete([directory])

    def move(self, pairs: list[tuple[str, str]]) -> None:
        self.make_folders(pairs)
        for_each(lambda pair: _rename(*pair), pairs)

    def match(self, pattern: str) -> list[FileMetadata]:
        plain = literal_prefix(pattern)
        if plain == pattern:
            found = _file_status(pattern)
            return [_metadata(pattern, found)] if found and found["type"] == "FILE" else []
        folder = plain.rpartition("/")[0] + "/"
        levels = 0 if "**" in pattern else 1 + pattern.count("/", len(folder))  # 0: all there are
        metadata = _walk(folder, levels)
        return list(FileSystems.get_filesystem(pattern).match_files(metadata, pattern))

    def list_below(self, directory: str) -> list[str]:
        return [metadata.path for metadata in _walk(directory.rstrip("/") + "/", 0)]

    def entries(self, folder: str) -> Iterator[str]:
        for name, found in _ask(folder, lambda client, path: client.list(path, status=True)) or ():
            yield f"{folder}{name}/" if found["type"] == "DIRECTORY" else f"{folder}{name}"


def _walk(folder: str, levels: int) -> list[FileMetadata]:
    """Lists the files below a folder, of so many levels of folders; 0: of all levels."""

    def walk(client: Any, root: str) -> list[FileMetadata]:
        return [
            _metadata(folder + posixpath.relpath(posixpath.join(parent, name), root), found)
            for (parent, _), _, children in client.walk(
                root, depth=levels, status=True, ignore_missing=True
            )
            for name, found in children
        ]

    return _ask(folder, walk) or []


def _rename(source: str, target: str) -> None:
    """Renames a file in one step, replacing what is there."""
    _, new_name = _client_and_name(target)
    answer = _ask(source, lambda client, old_name: _rename_over(client, old_name, new_name))
    if answer is None:
        raise FileNotFoundError(f"{source} could not be moved to {target}: it is not there")
    # A gateway (HttpFS) does not know the option, and answers as to a plain rename.
    if answer.content and not answer.json()["boolean"]:
        FileSystems.delete([target])
        FileSystems.rename([source], [target])


def _file_status(path: str) -> Any:
    return _ask(path, lambda client, name: client.status(name))


def _metadata(path: str, found: dict[str, Any]) -> FileMetadata:
    return FileMetadata(path, found["length"], found["modificationTime"] / 1000)


def _ask(path: str, request: Callable[[Any, str], Any]) -> Any:
    """Returns the answer to `request(client, HDFS's name of the path)`, None if nothing is there.

    Raises:
      BuildError: HDFS refused, or did not answer.
    """
    if path.startswith("hdfs:///"):  # Beam would ask for //, which HDFS does not know
        raise BuildError(
            f"{path} is not a path that Beam knows: write hdfs://folder/file for /folder/file, or "
            "hdfs://namenode/folder/file with --hdfs_full_urls"
        )
    try:
        return request(*_client_and_name(path))
    except Exception as error:
        if status(error) == HTTPStatus.NOT_FOUND:
            return None
        raise BuildError(
            f"{path} can't be accessed: {error!r}; check --hdfs_host, --hdfs_port (WebHDFS's, "
            "mostly 9870) and --hdfs_user"
        ) from error
