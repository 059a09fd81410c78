"""Exact duplicates: of the records with equal pixels the one with the smallest key stays."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import apache_beam as beam
import numpy as np
import numpy.typing as npt

from beam_jobs.prepare.known import OldPixels
from beam_jobs.prepare.prepared_chunk import PreparedChunk

OLD = -1
_PARTITION_ROWS = 1 << 19  # of pixels, compared by one worker


@dataclass(frozen=True, kw_only=True, eq=False)
class Pixels:
    """Hashes by which duplicates are found, of some records of one bucket; as in PreparedChunk.

    Those of the dataset that is appended to have the bucket `OLD`.
    """

    bucket: int
    pixels: npt.NDArray[np.uint64]
    key: npt.NDArray[np.uint64]
    labels_hash: npt.NDArray[np.uint64]
    ids: tuple[str, ...]

    @classmethod
    def of(cls, bucket: int, chunks: Sequence[PreparedChunk]) -> Self:
        """Pixels of all accepted records of a bucket's chunks."""
        return cls(
            bucket=bucket,
            pixels=np.concatenate([chunk.pixels for chunk in chunks]),
            key=np.concatenate([chunk.references.key for chunk in chunks]),
            labels_hash=np.concatenate([chunk.labels_hash for chunk in chunks]),
            ids=tuple(id_ for chunk in chunks for id_ in chunk.ids),
        )

    @classmethod
    def of_old(cls, old: OldPixels) -> Self:
        """Pixels of records of the dataset that is appended to."""
        lookup = old.lookup
        return cls(
            bucket=OLD,
            pixels=lookup.pixels,
            key=lookup.key,
            labels_hash=lookup.labels,
            ids=old.ids,
        )

    def by_partition(self, partitions: int) -> Iterator[tuple[int, Self]]:
        """Yields (remainder of the pixels' hash, its records): equal pixels come together."""
        partition = self.pixels[:, 0] % np.uint64(partitions)
        for remainder in np.unique(partition).tolist():
            rows = np.flatnonzero(partition == remainder)
            yield (
                remainder,
                replace(
                    self,
                    pixels=self.pixels[rows],
                    key=self.key[rows],
                    labels_hash=self.labels_hash[rows],
                    ids=tuple(self.ids[row] for row in rows.tolist()),
                ),
            )


@dataclass(frozen=True, kw_only=True)
class Duplicate:
    """A record that is left out because another has the same pixels."""

    bucket: int
    key: bytes  # of the record, as in its references
    id: str
    duplicate_of: str
    same_labels: bool | None  # None of a near-duplicate, which has boxes of its own

    @property
    def id_hash(self) -> int:
        """First 64 bits of the id's hash."""
        return int.from_bytes(self.key[:8], "little")


class FindDuplicates(beam.PTransform):
    """Pixels to Duplicate; `inputs` is the number of rows, a singleton."""

    def __init__(self, inputs: beam.pvalue.AsSingleton) -> None:
        super().__init__()
        self._inputs = inputs

    def expand(self, pixels: beam.PCollection[Pixels]) -> beam.PCollection[Duplicate]:
        def by_partition(part: Pixels, inputs: int) -> Iterator[tuple[int, Pixels]]:
            return part.by_partition(max(1, inputs // _PARTITION_ROWS))

        return (
            pixels
            | "ByPixels" >> beam.FlatMap(by_partition, inputs=self._inputs)  # (partition, Pixels)
            | "Group" >> beam.GroupByKey()  # (partition, Iterable[Pixels])
            | "Duplicates" >> beam.FlatMapTuple(lambda _, parts: _duplicates(parts))
        )


def _duplicates(parts: Iterable[Pixels]) -> Iterator[Duplicate]:
    """Yields all new records but the first, in the order of keys, of those with equal pixels.

    An old record comes before any new one.
    """
    parts = list(parts)
    bucket = np.repeat([part.bucket for part in parts], [len(part.ids) for part in parts])
    pixels = np.concatenate([part.pixels for part in parts])
    key = np.concatenate([part.key for part in parts])
    labels_hash = np.concatenate([part.labels_hash for part in parts])
    ids = [id_ for part in parts for id_ in part.ids]
    # Records in the order of pixels, then of keys: of the pixels A A B A B they come as A A A B B,
    # `repeats` is 0 1 1 0 1, and `firsts`, the position of the first with these pixels, 0 0 0 3 3.
    order = np.lexsort((key[:, 1], key[:, 0], bucket != OLD, pixels[:, 1], pixels[:, 0]))
    repeats = np.zeros(len(order), bool)
    repeats[1:] = (pixels[order[1:]] == pixels[order[:-1]]).all(axis=1)
    firsts = np.maximum.accumulate(np.where(repeats, 0, np.arange(len(order))))
    for position in np.flatnonzero(repeats).tolist():
        row, first = order[position], order[firsts[position]]
        if bucket[row] == OLD:
            continue
        yield Duplicate(
            bucket=int(bucket[row]),
            key=key[row].tobytes(),
            id=ids[row],
            duplicate_of=ids[first],
            same_labels=bool(labels_hash[row] == labels_hash[first]),
        )
