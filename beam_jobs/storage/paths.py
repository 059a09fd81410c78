"""Paths as people write them: local ones, addresses of a store, and file://."""

from functools import cache
from pathlib import Path
from urllib.parse import unquote

from apache_beam.io.filesystem import FileSystem

from beam_jobs.shown import shown

# Beam has these if its extras are installed, and says which where they are not.
_SCHEMES = ("s3", "gs", "azfs", "hdfs")
_AZURE = ("az", "abfs", "abfss", "wasb", "wasbs")


def is_absolute(path: str) -> bool:
    """Returns whether a path means the same in any folder."""
    return path.startswith("/") or "://" in path


def absolute(path: str) -> str:
    """Returns a path that means the same in any process.

    Raises:
      ValueError: no file system has such paths.
    """
    path = resolved(path)
    return path if is_absolute(path) else str(Path(path).absolute())


def resolved(path: str) -> str:
    """Returns a path as Beam's file systems take it: of file:///a%20b, the local path /a b.

    Raises:
      ValueError: no file system has such paths.
    """
    if "://" not in path:
        return path
    scheme, _, address = path.partition("://")
    if scheme == "file":
        host, slash, name = address.partition("/")
        if slash and host in ("", "localhost"):
            return "/" + unquote(name)
        raise ValueError(f"{shown(path)} names no file of this machine: write file:///PATH")
    if scheme in _known_schemes():
        return path
    if scheme in ("http", "https"):
        advice = "download what lies there, and name the files"
    elif scheme in _AZURE:
        advice = "write azfs://ACCOUNT/CONTAINER/PATH"
    else:
        advice = f"give a local path, or one of {', '.join(f'{name}://' for name in _SCHEMES)}"
    raise ValueError(f"{shown(path)} is on no file system that can be read: {advice}")


@cache
def _known_schemes() -> frozenset[str | None]:
    return frozenset((*_SCHEMES, *(kind.scheme() for kind in FileSystem.get_all_subclasses())))
