"""Layouts of receipts that have none given: clusters of a sample, and the nearest one of each.

The job has the descriptors of all receipts in staging files, a bucket in each. One worker clusters
a sample of them. What is near none of these clusters is sampled again, so that rare layouts are
found, too: of 50 million receipts, the first sample of 10,000 finds the layouts that have more than
some 5,000 receipts, and the next one those of the few that are left.

A worker holds the descriptors of a bucket and the centroids of all layouts, with at most 20 KB for
each. A build finds at most 3 · 10,000 layouts, and an append may add as many. The worker that
clusters also holds the distances of all pairs of a sample, twice: 0.8 GB.
"""

import hashlib
import heapq
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any, Self

import apache_beam as beam
import numpy as np
import numpy.typing as npt
from apache_beam.pvalue import AsList, AsSingleton, TaggedOutput

from beam_jobs.errors import BuildError
from beam_jobs.layouts.clusters import FloatArray, IntArray, cluster, nearest
from beam_jobs.layouts.descriptors import Method
from beam_jobs.options import Base
from beam_jobs.prepare.chunks import bucket_count
from beam_jobs.prepare.prepared_chunk import PreparedChunk
from beam_jobs.prepare.references import References, encode_values, stage_references
from beam_jobs.prepare.staging import Staging
from beam_jobs.storage import files
from beam_jobs.writing.output import read_centroids, read_manifest
from schemas.layout_centroids import NO_CLUSTER, Descriptors, LayoutCentroids, cluster_name
from schemas.least_certain import DECIMALS, MAX_RECEIPTS
from schemas.receipt import LAYOUT

_ROUNDS = 3
_SAMPLE = 10_000
_MIN_SAMPLE_OF_BUCKET = 16

# A bucket, the path of its References, and that of its KeyedDescriptors.
Described = tuple[int, str, str]

# The similarity of a receipt to its layout, and the 16 bytes of its record's key.
Uncertain = tuple[float, bytes]


@dataclass(frozen=True, kw_only=True)
class FoundLayouts:
    """Layouts that `find_layouts` finds.

    Attributes:
      references: (bucket, path of its References) with the layouts.
      centroids: path of the centroids of all layouts.
      least_certain: the receipts that are farthest from the centroid of their layout ([Uncertain]).
    """

    references: beam.PCollection[tuple[int, str]]
    centroids: AsSingleton
    least_certain: AsSingleton


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyedDescriptors:
    """Descriptors of some receipts.

    Attributes:
      key: uint64 [n, 2], hash of the id, as in References.
      values: int8 [n, size].
    """

    key: npt.NDArray[np.uint64]
    values: Descriptors

    def __len__(self) -> int:
        return len(self.key)

    @classmethod
    def of_chunks(cls, chunks: Sequence[PreparedChunk]) -> Self:
        """Descriptors of all accepted records of some chunks."""
        return cls(
            key=np.concatenate([chunk.references.key for chunk in chunks]),
            values=np.concatenate([chunk.descriptors for chunk in chunks]),
        )

    def take(self, rows: npt.NDArray[np.int64]) -> Self:
        """Returns the given rows, in that order."""
        return type(self)(key=self.key[rows], values=self.values[rows])

    def in_order_of(self, references: References) -> Self:
        """Returns the descriptors of these records, in their order; all of them have one."""
        place = {key: row for row, key in enumerate(map(tuple, self.key.tolist()))}
        rows = [place[key] for key in map(tuple, references.key.tolist())]
        return self.take(np.array(rows, np.int64))

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Joins the rows of all parts."""
        return cls(
            key=np.concatenate([part.key for part in parts]),
            values=np.concatenate([part.values for part in parts]),
        )

    def to_bytes(self) -> bytes:
        """The contents of a staging file."""
        buffer = io.BytesIO()
        np.savez(buffer, key=self.key, values=self.values)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of `to_bytes`."""
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return cls(key=arrays["key"], values=arrays["values"])

    def staged(self, staging: Staging) -> str:
        """Writes them to a staging file, and returns its path."""
        return _write(staging, self.to_bytes())

    @classmethod
    def read(cls, path: str) -> Self:
        """Inverse of `staged`."""
        return cls.from_bytes(files.read(path))


def find_layouts(
    references: beam.PCollection[tuple[int, str]],
    descriptors: beam.PCollection[tuple[int, str]],
    inputs: AsSingleton | int,
    *,
    method: Method,
    base: Base | None,
    staging: Staging,
) -> FoundLayouts:
    """Finds the layouts of all receipts.

    Args:
      references: (bucket, path of its References), whose layouts are "".
      descriptors: (bucket, path of its KeyedDescriptors).
      inputs: number of inputs.
      method: the kind of the descriptors.
      base: the dataset that is appended to: its layouts stay; None where all are found anew.
      staging: where the staging files go.
    """
    described = (
        (references, descriptors)
        | "WithDescriptors" >> beam.CoGroupByKey()
        | "Described" >> beam.FlatMapTuple(_described)
    )  # Described
    known = AsSingleton(
        references.pipeline
        | "OnceDescribed" >> beam.Impulse()
        | "KnownLayouts" >> beam.Map(_known, method=method, base=base, staging=staging)
    )
    centroids = known
    for number in range(_ROUNDS):
        samples = described | f"Sample{number}" >> beam.FlatMap(
            _sample, centroids=centroids, inputs=inputs, method=method, staging=staging
        )  # path of its KeyedDescriptors
        centroids = AsSingleton(
            references.pipeline
            | f"OnceSampled{number}" >> beam.Impulse()
            | f"Cluster{number}"
            >> beam.Map(
                _cluster,
                samples=AsList(samples),
                centroids=centroids,
                method=method,
                staging=staging,
            )
        )
    assigned = described | "AssignLayouts" >> beam.FlatMap(
        _assign, known=known, centroids=centroids, method=method, staging=staging
    ).with_outputs("least_certain", main="references")
    least_certain = (
        assigned["least_certain"]
        | "LeastCertain" >> beam.CombineGlobally(_least_similar).as_singleton_view()
    )
    return FoundLayouts(
        references=assigned["references"], centroids=centroids, least_certain=least_certain
    )


def _known(_: bytes, *, method: Method, base: Base | None, staging: Staging) -> str:
    """Writes the centroids of the dataset that is appended to; returns where they lie."""
    # Read here and not by the launcher: the job may weigh 20 MB on Dataflow.
    found = None
    if base:
        found = read_centroids(base.directory, read_manifest(base.directory, base.version))
    if found is None:
        found = LayoutCentroids(
            layout_from=method.layout_from,
            descriptor_version=method.version,
            values=np.zeros((0, method.size), np.int8),
        )
    return _write(staging, found.to_bytes())


def _described(bucket: int, paths: tuple[Iterable[str], Iterable[str]]) -> Iterator[Described]:
    references, descriptors = (list(each) for each in paths)
    if references:
        yield bucket, references[0], descriptors[0]


def _sample(
    described: Described, *, centroids: str, inputs: int, method: Method, staging: Staging
) -> Iterator[str]:
    """Yields where a sample lies of the receipts of a bucket that are near no centroid.

    It may be empty; there is none of a bucket without receipts.
    """
    _, path, descriptors_path = described
    references = References.from_bytes(files.read(path))
    descriptors = KeyedDescriptors.read(descriptors_path).in_order_of(references)
    known = _read_centroids(centroids)
    number, _ = nearest(descriptors.values, known.values, max_distance=method.max_centroid_distance)
    rows = np.flatnonzero((number < 0) & descriptors.values.any(axis=1))
    # The second word is as good as random in each bucket. Buckets are ranges of the first, so they
    # have about as many receipts each: four times the mean is as good as all of the smallest.
    limit = _MIN_SAMPLE_OF_BUCKET + 4 * _SAMPLE // bucket_count(inputs)
    rows = rows[np.argsort(descriptors.key[rows, 1], kind="stable")][:limit]
    if len(references):
        yield descriptors.take(rows).staged(staging)


def _cluster(
    _: bytes, *, samples: Sequence[str], centroids: str, method: Method, staging: Staging
) -> str:
    """Adds the centroids of a sample to others; returns where all of them lie.

    Raises:
      BuildError: no receipt says anything by which layouts can be found.
    """
    known = _read_centroids(centroids)
    if not samples:
        return centroids
    sampled = KeyedDescriptors.concatenate([KeyedDescriptors.read(path) for path in samples])
    if not len(sampled) + len(known):
        raise BuildError(
            f"--layout-from {method.layout_from} finds no layout, as no receipt has "
            f"{method.needs}: choose another way, or --layout-from none"
        )
    sampled = sampled.take(np.lexsort((sampled.key[:, 0], sampled.key[:, 1]))[:_SAMPLE])
    found = cluster(
        sampled.values,
        max_distance=method.max_distance,
        max_joined_distance=method.max_joined_distance,
    )
    return _write(staging, replace(known, values=np.concatenate([known.values, found])).to_bytes())


def _assign(
    described: Described, *, known: str, centroids: str, method: Method, staging: Staging
) -> Iterator[Any]:
    """Gives the records of a bucket their layouts.

    Yields (bucket, path of its References) and, tagged, its least certain receipts ([Uncertain]).

    Known layouts come before new ones: else a receipt's layout would depend on what is appended
    with it.
    """
    bucket, path, descriptors_path = described
    references = References.from_bytes(files.read(path))
    descriptors = KeyedDescriptors.read(descriptors_path).in_order_of(references)
    count = len(_read_centroids(known))
    found = _read_centroids(centroids)
    max_distance = method.max_centroid_distance
    number, similarity = nearest(
        descriptors.values, found.values[:count], max_distance=max_distance
    )
    left = np.flatnonzero(number < 0)
    new, similarity[left] = nearest(
        descriptors.values[left], found.values[count:], max_distance=max_distance
    )
    number[left] = np.where(new < 0, new, new + count)
    names = [cluster_name(one) if one >= 0 else NO_CLUSTER for one in number.tolist()]
    categories = {**references.categories, LAYOUT: encode_values(names)}
    yield bucket, stage_references(replace(references, categories=categories), staging)
    yield TaggedOutput("least_certain", _uncertain(references, number, similarity))


def _uncertain(references: References, number: IntArray, similarity: FloatArray) -> list[Uncertain]:
    """Returns the records of a bucket that are least like their layout.

    The distance to the centroid is what tells: on the receipts of SROIE, all 9 that have another
    shop's layout by text are among the 24 least similar, but 6 of them among the 24 whose second
    nearest centroid is almost as near. By image, it is 7 and 6 of 14.
    """
    rows = np.flatnonzero(number >= 0)
    rounded = np.round(similarity[rows], DECIMALS).tolist()
    keys = [key.tobytes() for key in references.key[rows]]
    return _least_similar([list(zip(rounded, keys, strict=True))])


def _least_similar(parts: Iterable[list[Uncertain]]) -> list[Uncertain]:
    """Returns the least similar ones of all parts; of equally similar ones, the first by key."""
    return heapq.nsmallest(MAX_RECEIPTS, chain.from_iterable(parts))


@lru_cache(maxsize=2)
def _read_centroids(path: str) -> LayoutCentroids:
    """Reads centroids; buckets of the same step have the same ones."""
    try:
        return LayoutCentroids.from_bytes(files.read(path))
    except ValueError as error:
        raise BuildError(f"{path}: {error}; run the same command again") from error


def _write(staging: Staging, data: bytes) -> str:
    """Writes a staging file that is named by its contents; returns its path."""
    path = staging.layouts(hashlib.sha256(data).hexdigest())
    files.write(path, data)
    return path
