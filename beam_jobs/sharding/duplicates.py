"""Exact duplicates: of the records with equal pixels the one with the smallest key stays."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import apache_beam as beam
import numpy as np
import numpy.typing as npt

from beam_jobs.prepare.prepared_chunk import PreparedChunk

_BUCKET_ROWS = 1 << 19


@dataclass(frozen=True, kw_only=True, eq=False)
class Pixels:
    """What tells duplicates apart, of some records of one group; arrays as in PreparedChunk."""

    group: int
    pixels: npt.NDArray[np.uint64]
    key: npt.NDArray[np.uint64]
    truth: npt.NDArray[np.uint64]
    ids: tuple[str, ...]

    @classmethod
    def of(cls, group: int, chunks: Sequence[PreparedChunk]) -> Self:
        """Of all accepted records of a group's chunks."""
        return cls(
            group=group,
            pixels=np.concatenate([chunk.pixels for chunk in chunks]),
            key=np.concatenate([chunk.references.key for chunk in chunks]),
            truth=np.concatenate([chunk.truth for chunk in chunks]),
            ids=tuple(each for chunk in chunks for each in chunk.ids),
        )

    def by_bucket(self, buckets: int) -> Iterator[tuple[int, Self]]:
        """Parts with equal remainders of the pixels' hash."""
        bucket = self.pixels[:, 0] % np.uint64(buckets)
        for number in np.unique(bucket).tolist():
            rows = np.flatnonzero(bucket == number)
            yield (
                number,
                replace(
                    self,
                    pixels=self.pixels[rows],
                    key=self.key[rows],
                    truth=self.truth[rows],
                    ids=tuple(self.ids[row] for row in rows.tolist()),
                ),
            )


@dataclass(frozen=True, kw_only=True)
class Duplicate:
    """A record that is left out because another has the same pixels."""

    group: int
    key: bytes  # of the record, as in its references
    id: str
    duplicate_of: str
    same_labels: bool

    @property
    def word(self) -> int:
        """First word of the id's hash."""
        return int.from_bytes(self.key[:8], "little")


class FindDuplicates(beam.PTransform):
    """Pixels to Duplicate; `inputs` is the number of rows, a singleton."""

    def __init__(self, inputs: beam.pvalue.AsSingleton) -> None:
        super().__init__()
        self._inputs = inputs

    def expand(self, pixels: beam.PCollection[Pixels]) -> beam.PCollection[Duplicate]:
        def by_bucket(part: Pixels, inputs: int) -> Iterator[tuple[int, Pixels]]:
            return part.by_bucket(max(1, inputs // _BUCKET_ROWS))

        return (
            pixels
            | "ByPixels" >> beam.FlatMap(by_bucket, inputs=self._inputs)  # (bucket, Pixels)
            | "Group" >> beam.GroupByKey()  # (bucket, Iterable[Pixels])
            | "Duplicates" >> beam.FlatMapTuple(lambda _, parts: _duplicates(parts))
        )


def _duplicates(parts: Iterable[Pixels]) -> Iterator[Duplicate]:
    known = list(parts)
    group = np.repeat([part.group for part in known], [len(part.ids) for part in known])
    pixels = np.concatenate([part.pixels for part in known])
    key = np.concatenate([part.key for part in known])
    truth = np.concatenate([part.truth for part in known])
    ids = [each for part in known for each in part.ids]
    order = np.lexsort((key[:, 1], key[:, 0], pixels[:, 1], pixels[:, 0]))
    repeats = np.zeros(len(order), bool)
    repeats[1:] = (pixels[order[1:]] == pixels[order[:-1]]).all(axis=1)
    firsts = np.maximum.accumulate(np.where(repeats, 0, np.arange(len(order))))
    for place in np.flatnonzero(repeats).tolist():
        row, kept = order[place], order[firsts[place]]
        yield Duplicate(
            group=int(group[row]),
            key=key[row].tobytes(),
            id=ids[row],
            duplicate_of=ids[kept],
            same_labels=bool(truth[row] == truth[kept]),
        )
