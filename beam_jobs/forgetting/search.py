"""The search: which files of a dataset directory hold what is to be forgotten."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from beam_jobs.errors import BuildError
from beam_jobs.forgetting.row_text import ids_in
from beam_jobs.storage import files
from beam_jobs.storage.checksums import checksum
from schemas.file_names import is_listing
from schemas.index import RecordIndex
from schemas.manifest import Manifest

_FILES_AT_ONCE = 64


@dataclass(frozen=True, kw_only=True)
class Found:
    """A file that holds something to forget.

    Attributes:
      name: its path, relative to the directory: a record index or a listing.
      ids: the ids that inputs in it have, of those to forget; none of a listing that only names
        the record of which an input is a duplicate.
      positions: of a record index, the rows with these ids, ascending.
    """

    name: str
    ids: tuple[str, ...] = ()
    positions: tuple[int, ...] = ()


def searched_files(manifests: Iterable[Manifest]) -> Iterator[dict[str, int]]:
    """Yields the files that name ids, of all versions, some at a time: name to CRC32C."""
    sums: dict[str, int] = {}
    for manifest in manifests:
        sums |= {name: one.crc32c for name, one in manifest.checksums.items() if is_listing(name)}
        for split in manifest.splits.values():
            sums |= {shard.index_name: shard.index_crc32c for shard in split.shards}
    names = sorted(sums)
    for start in range(0, len(names), _FILES_AT_ONCE):
        yield {name: sums[name] for name in names[start : start + _FILES_AT_ONCE]}


def search(sums: Mapping[str, int], *, directory: str, ids: frozenset[str]) -> Iterator[Found]:
    """Yields the files that hold one of the ids.

    Args:
      sums: files of `searched_files`.
      directory: the dataset directory.
      ids: what is to be forgotten.

    Raises:
      BuildError: a file is missing or damaged.
    """
    paths = {files.join(directory, name): crc32c for name, crc32c in sums.items()}
    contents = files.map_paths(lambda path: read_whole(path, paths[path]), list(paths))
    for name, data in zip(sums, contents, strict=True):
        if not is_listing(name):
            rows = [
                (row, id_)
                for row, id_ in enumerate(RecordIndex.from_bytes(data).ids())
                if id_ in ids
            ]
            if rows:
                yield Found(
                    name=name,
                    ids=tuple(sorted({id_ for _, id_ in rows})),
                    positions=tuple(row for row, _ in rows),
                )
        else:
            lines = list(map(json.loads, data.splitlines()))
            matching = frozenset[str]().union(*(ids_of(line, ids) for line in lines))
            others = {
                line.get(name) for line in lines for name in ("duplicate_of", "near_duplicate_of")
            }
            if matching or not others.isdisjoint(ids):
                yield Found(name=name, ids=tuple(sorted(matching)))


def ids_of(line: Mapping[str, Any], ids: frozenset[str]) -> frozenset[str]:
    """Returns which of the ids an input of a listing has."""
    return ids_in(line, ids) if "source" in line else ids & {line["id"]}


def read_whole(path: str, crc32c: int) -> bytes:
    """Reads a file, in which nothing may be overlooked for a damaged byte.

    Raises:
      BuildError: it can't be read, or is not the one that was written.
    """
    try:
        data = files.read(path)
    except OSError as error:
        raise damaged(path, f"can't be read: {error}") from error
    if checksum(data).crc32c != crc32c:
        raise damaged(path, "has another checksum than in the manifest")
    return data


def damaged(path: str, fault: str) -> BuildError:
    """Makes the error of a file that is not as it was written."""
    return BuildError(
        f"{path} {fault}: nothing was forgotten; restore the file from a copy, and run the same "
        "command again"
    )
