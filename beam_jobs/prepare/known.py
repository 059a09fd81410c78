"""Records that a dataset has already, found among the inputs that are appended to it.

The hashes of the new inputs go to staging files, and each worker looks for them in the lookups of
the old shards, one shard at a time. What it holds is eight bytes for each new input and the lookup
of one shard, whatever the number of old records; what a runner shuffles is only what was found.
"""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from beam_jobs.errors import BuildError
from beam_jobs.prepare.chunks import bucket_count, chunk_count, range_shift
from beam_jobs.prepare.staging import Staging
from beam_jobs.storage import files
from schemas.index import RecordIndex
from schemas.lookup import RecordLookup
from schemas.manifest import Manifest, Shard

HashArray = npt.NDArray[np.uint64]
_SHARDS_AT_ONCE = 64

Key = tuple[int, int]
Known = Mapping[Key, tuple[Key, int]]  # hash of an id to the hashes of its pixels and its labels


@dataclass(frozen=True, kw_only=True)
class OldShards:
    """Some shards of one split of the dataset that is appended to; `split` is its position."""

    directory: str
    split: int
    shards: tuple[Shard, ...]

    @classmethod
    def of(cls, directory: str, manifest: Manifest) -> Iterator["OldShards"]:
        """Yields all shards of a version, some at a time."""
        for split, part in enumerate(manifest.splits.values()):
            for start in range(0, len(part.shards), _SHARDS_AT_ONCE):
                yield cls(
                    directory=directory,
                    split=split,
                    shards=part.shards[start : start + _SHARDS_AT_ONCE],
                )

    def lookups(self) -> Iterator[tuple[Shard, RecordLookup]]:
        """Reads the lookup of each shard.

        Raises:
          BuildError: a lookup is damaged.
        """
        paths = [files.join(self.directory, shard.lookup_name) for shard in self.shards]
        # At most so many bytes: what is read ahead from a store is bounded by the sum.
        sizes = [RecordLookup.max_bytes(shard.records) for shard in self.shards]
        data = files.read_ranges([(path, 0, size) for path, size in zip(paths, sizes, strict=True)])
        for shard, path, one in zip(self.shards, paths, data, strict=True):
            try:
                lookup = RecordLookup.from_bytes(one)
            except ValueError as error:
                raise BuildError(f"{path}: {error}; run python -m beam_jobs.verify") from error
            yield shard, lookup


def write_hashes(staging: Staging, hashes: HashArray) -> str:
    """Writes hashes to a staging file named by its contents; returns its path."""
    data = np.unique(hashes).astype("<u8").tobytes()
    path = staging.hashes(hashlib.sha256(data).hexdigest())
    files.write(path, data)
    return path


@lru_cache(maxsize=2)  # ids first; later pixels and groups
def read_hashes(paths: tuple[str, ...]) -> HashArray:
    """Reads files of `write_hashes`: all their hashes, ascending."""
    parts = [np.frombuffer(data, "<u8") for data in files.read_ranges([_whole(p) for p in paths])]
    return np.unique(np.concatenate([np.zeros(0, np.uint64), *parts]))


def _whole(path: str) -> files.ByteRange:
    return path, 0, sys.maxsize


def among(values: HashArray, wanted: HashArray) -> npt.NDArray[np.bool_]:
    """Returns which of the values are among others, which are ascending."""
    # Not `np.isin`, which would sort what is wanted anew for each shard.
    at = np.searchsorted(wanted, values)
    found = np.zeros(len(values), bool)
    inside = at < len(wanted)
    found[inside] = wanted[at[inside]] == values[inside]
    return found


def find_ids(old: OldShards, wanted: Sequence[str], inputs: int) -> Iterator[tuple[int, bytes]]:
    """Yields (bucket, lookup) of the old records whose ids new inputs have.

    Args:
      old: the shards to look into.
      wanted: files with the first words of the new ids' hashes.
      inputs: number of new inputs.
    """
    shift = np.uint64(range_shift(bucket_count(inputs)) % 64)
    hashes = read_hashes(tuple(sorted(wanted)))
    for _, lookup in old.lookups():
        found = lookup.take(among(lookup.key[:, 0], hashes))
        # A shift by 64 bits, of a single bucket, is none to NumPy.
        buckets = found.key[:, 0] >> shift if shift else np.zeros(len(found), np.uint64)
        for bucket in np.unique(buckets).tolist():
            yield bucket, replace(found.take(buckets == bucket), fingerprints=None).to_bytes()


def known_by_chunk(lookups: Iterable[bytes], inputs: int) -> dict[int, Known]:
    """Joins what `find_ids` found for a bucket: chunk to the known records of it."""
    shift = range_shift(chunk_count(inputs))
    known: dict[int, dict[Key, tuple[Key, int]]] = {}
    for data in lookups:
        lookup = RecordLookup.from_bytes(data)
        columns = (lookup.key.tolist(), lookup.pixels.tolist(), lookup.labels.tolist())
        for (word, other), (high, low), labels in zip(*columns, strict=True):
            known.setdefault(word >> shift, {})[word, other] = ((high, low), labels)
    return dict(known)


@dataclass(frozen=True, kw_only=True, eq=False)
class OldPixels:
    """Old records whose pixels new inputs may have; arrays as in RecordLookup."""

    lookup: RecordLookup
    ids: tuple[str, ...]


OldGroups = tuple[int, bytes]  # position of a split, uint64 hashes of groups as bytes


def find_pixels_and_groups(
    old: OldShards, wanted: Sequence[tuple[str, str]]
) -> Iterator[OldPixels | OldGroups]:
    """Yields the old records whose pixels new inputs have, and the old groups that come again.

    Args:
      old: the shards to look into.
      wanted: pairs of files, with the first words of the new pixels' hashes and with the hashes of
        the new groups.
    """
    pixels = read_hashes(tuple(sorted(path for path, _ in wanted)))
    groups = read_hashes(tuple(sorted(path for _, path in wanted)))
    for shard, lookup in old.lookups():
        rows = np.flatnonzero(among(lookup.pixels[:, 0], pixels))
        if len(rows):
            path = files.join(old.directory, shard.index_name)
            index = RecordIndex.from_bytes(files.read(path))
            yield OldPixels(
                lookup=lookup.take(rows), ids=tuple(index.id(row) for row in rows.tolist())
            )
        found = np.unique(lookup.group)
        found = found[among(found, groups)]
        if len(found):
            yield old.split, found.tobytes()


def split_of_groups(found: Sequence[OldGroups]) -> tuple[HashArray, npt.NDArray[np.int16]]:
    """Joins the groups that were found: uint64, ascending, and the split of each."""
    split_of: dict[int, int] = {}
    for split, data in sorted(found):
        for group in np.frombuffer(data, np.uint64).tolist():
            # Of a group in two splits, which no build makes, the first counts.
            split_of.setdefault(group, split)
    groups = sorted(split_of)
    return (
        np.array(groups, np.uint64),
        np.array([split_of[group] for group in groups], np.int16),
    )
