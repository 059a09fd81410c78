"""Exact duplicates: of the records with equal pixels the one with the smallest key stays."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
import numpy.typing as npt

from beam_jobs.prepared import PreparedChunk

_BUCKET_ROWS = 1 << 19


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pixels:
    """Columns of the records of one chunk whose pixel hash falls into one bucket."""

    chunk: int
    pixels: npt.NDArray[np.uint64]
    key: npt.NDArray[np.uint64]
    truth: npt.NDArray[np.uint64]
    ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Duplicate:
    """A record that is left out because another has the same pixels."""

    chunk: int
    key: tuple[int, int]
    id: str
    duplicate_of: str
    same_labels: bool


class FindDuplicates(beam.PTransform):
    """PreparedChunk to Duplicate; `inputs` is the number of rows, a singleton."""

    def __init__(self, inputs: beam.pvalue.AsSingleton) -> None:
        super().__init__()
        self._inputs = inputs

    def expand(self, chunks: beam.PCollection[PreparedChunk]) -> beam.PCollection[Duplicate]:
        return (
            chunks
            | "ByPixels" >> beam.FlatMap(_by_pixels, inputs=self._inputs)  # (bucket, _Pixels)
            | "Group" >> beam.GroupByKey()  # (bucket, Iterable[_Pixels])
            | "Duplicates" >> beam.FlatMapTuple(lambda _, parts: _duplicates(parts))
        )


def _by_pixels(chunk: PreparedChunk, inputs: int) -> Iterator[tuple[int, _Pixels]]:
    buckets = np.uint64(max(1, inputs // _BUCKET_ROWS))
    bucket = chunk.pixels[:, 0] % buckets
    for number in np.unique(bucket).tolist():
        rows = np.flatnonzero(bucket == number)
        yield (
            number,
            _Pixels(
                chunk=chunk.number,
                pixels=chunk.pixels[rows],
                key=chunk.references.key[rows],
                truth=chunk.truth[rows],
                ids=tuple(chunk.ids[row] for row in rows.tolist()),
            ),
        )


def _duplicates(parts: Iterable[_Pixels]) -> Iterator[Duplicate]:
    known = list(parts)
    chunk = np.repeat([part.chunk for part in known], [len(part.ids) for part in known])
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
            chunk=int(chunk[row]),
            key=(int(key[row, 0]), int(key[row, 1])),
            id=ids[row],
            duplicate_of=ids[kept],
            same_labels=bool(truth[row] == truth[kept]),
        )
