"""Near-duplicates: receipts that were photographed, scanned or sent twice.

Receipts with a word in common (`beam_jobs.near_duplicates.pairs`) meet on one worker. Words are
spread over partitions by their hash: a bucket writes the receipts that have words of a partition to
a staging file, and a runner shuffles only where they lie.

A worker that compares a partition holds some 131,000 words, and 400 bytes for each receipt that
has one of them; a word that many receipts have makes its partition larger. One worker unites all
pairs to groups, with some 1,600 bytes for each pair: 3.2 GB for two million.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
from apache_beam.pvalue import AsList, AsSingleton, TaggedOutput

from beam_jobs.near_duplicates.pairs import NO_WORD, receipt_words
from beam_jobs.near_duplicates.receipts import NumberedReceipts
from beam_jobs.near_duplicates.unite import (
    NEW,
    Decisions,
    NearDuplicatesPolicy,
    NearPair,
    drop_repeats,
    unite,
)
from beam_jobs.prepare.chunks import bucket_count, range_shift
from beam_jobs.prepare.known import (
    OldGroups,
    OldShards,
    among,
    read_hashes,
    split_of_groups,
    write_hashes,
)
from beam_jobs.prepare.prepared_chunk import PreparedChunk
from beam_jobs.prepare.references import References, stage_references
from beam_jobs.prepare.staging import Staging
from beam_jobs.sharding.duplicates import Duplicate, NearDuplicate
from beam_jobs.storage import files
from beam_jobs.storage.files import ByteRange
from schemas.index import RecordIndex
from schemas.receipt_numbers import ReceiptNumbers

_PARTITION_WORDS = 1 << 17
_WORDS_OF_INPUT = 8
_PAIR_BITS = 10  # pairs are gathered by the first bits of their first receipt's hash

# A bucket, the path of its References, and that of its NumberedReceipts.
Numbered = tuple[int, str, str]


@dataclass(frozen=True, kw_only=True)
class FoundNearDuplicates:
    """Collections that `find_near_duplicates` makes.

    Attributes:
      references: (bucket, path of its References), with the groups that receipts are in now.
      groups: OldGroups, the splits of groups that the dataset has already; None for a new one.
      dropped: Duplicate, the receipts to be dropped; None if all are kept.
      listed: NearDuplicate, all pairs; None if none are looked for.
    """

    references: beam.PCollection
    groups: beam.PCollection | None
    dropped: beam.PCollection | None = None
    listed: beam.PCollection | None = None


def stage_numbers(chunks: Sequence[PreparedChunk], staging: Staging) -> str:
    """Writes the numbers of all accepted records of some chunks; returns the path."""
    key = np.concatenate([chunk.references.key for chunk in chunks])
    numbers = ReceiptNumbers.concatenate(chunk.numbers for chunk in chunks)
    receipts = NumberedReceipts(
        key=key,
        group=np.concatenate([chunk.references.group for chunk in chunks]),
        split=np.full(len(key), NEW, np.int32),
        ids=tuple(id_ for chunk in chunks for id_ in chunk.ids),
        numbers=numbers,
        words=receipt_words(numbers),
    )
    return _write(staging, receipts.to_bytes())


def find_near_duplicates(
    references: beam.PCollection[tuple[int, str]],
    numbers: beam.PCollection[tuple[int, str]],
    old: beam.PCollection[OldShards] | None,
    groups: beam.PCollection[OldGroups] | None,
    inputs: AsSingleton,
    *,
    policy: NearDuplicatesPolicy,
    staging: Staging,
) -> FoundNearDuplicates:
    """Finds near-duplicates among the inputs, and of those in the dataset appended to.

    Args:
      references: (bucket, path of its References).
      numbers: (bucket, path of its NumberedReceipts).
      old: shards of the dataset that is appended to; None for a new one.
      groups: the splits of groups that the dataset has already; None for a new one.
      inputs: number of inputs.
      policy: what becomes of them, not `off`.
      staging: where the staging files go.
    """
    pipeline = references.pipeline
    numbered = (
        (references, numbers)
        | "WithNumbers" >> beam.CoGroupByKey()
        | "Numbered" >> beam.FlatMapTuple(_numbered)
    )  # Numbered
    pieces = numbered | "ByWord" >> beam.FlatMap(_pieces, inputs=inputs, staging=staging)
    if old is not None:
        wanted = numbered | "Words" >> beam.Map(_write_words, staging=staging)  # path
        old_pieces = old | "OldByWord" >> beam.FlatMap(
            _old_pieces, wanted=AsList(wanted), inputs=inputs, staging=staging
        )
        pieces = (pieces, old_pieces) | "NewAndOldPieces" >> beam.Flatten()
    pairs = (
        pieces  # (partition, ByteRange)
        | "ByPartition" >> beam.GroupByKey()
        | "Compare" >> beam.FlatMap(compare, inputs=inputs)  # (number, [NearPair])
        | "GatherPairs" >> beam.GroupByKey()
        | "DistinctPairs" >> beam.MapTuple(lambda _, parts: sorted(set().union(*parts)))
    )  # [NearPair]
    decisions = AsSingleton(
        pipeline
        | "OnceCompared" >> beam.Impulse()
        | "Unite"
        >> beam.Map(
            _decide,
            pairs=AsList(pairs),
            groups=() if groups is None else AsList(groups),
            policy=policy,
            staging=staging,
        )
    )
    told = pairs | "Tell" >> beam.FlatMap(
        _tell, decisions=decisions, inputs=inputs, policy=policy
    ).with_outputs("dropped", main="listed")
    if policy == "drop":
        return FoundNearDuplicates(
            references=references, groups=groups, dropped=told["dropped"], listed=told["listed"]
        )
    references |= "Regroup" >> beam.Map(_regroup, decisions=decisions, staging=staging)
    if groups is not None:
        groups = (
            pipeline
            | "OnceUnited" >> beam.Impulse()
            | "SplitsOfGroups" >> beam.FlatMap(_splits, decisions=decisions, groups=AsList(groups))
        )
    return FoundNearDuplicates(references=references, groups=groups, listed=told["listed"])


def _numbered(bucket: int, paths: tuple[Iterable[str], Iterable[str]]) -> Iterator[Numbered]:
    references, numbers = (list(each) for each in paths)
    if references:
        yield bucket, references[0], numbers[0]


def _read(numbered: Numbered) -> NumberedReceipts:
    """Reads the receipts of a bucket that its references still hold."""
    _, path, numbers = numbered
    receipts = NumberedReceipts.from_bytes(files.read(numbers))
    kept = set(map(tuple, References.from_bytes(files.read(path)).key.tolist()))
    rows = [row for row, key in enumerate(map(tuple, receipts.key.tolist())) if key in kept]
    return receipts.take(np.array(rows, np.int64))


def _write_words(numbered: Numbered, *, staging: Staging) -> str:
    words = _read(numbered).words
    return write_hashes(staging, words[words != NO_WORD])


def partitions(inputs: int) -> int:
    """Number of partitions of the words of so many inputs."""
    return max(1, inputs * _WORDS_OF_INPUT // _PARTITION_WORDS)


def _pieces(
    numbered: Numbered, inputs: int, *, staging: Staging
) -> Iterator[tuple[int, ByteRange]]:
    """Yields (partition, where the receipts of a bucket lie that have words in it)."""
    receipts = _read(numbered)
    yield from write_pieces(receipts, receipts.words != NO_WORD, partitions(inputs), staging)


def _old_pieces(
    old: OldShards, wanted: Sequence[str], inputs: int, *, staging: Staging
) -> Iterator[tuple[int, ByteRange]]:
    """Yields (partition, where old receipts lie) of those that share a word with a new one."""
    hashes = read_hashes(tuple(sorted(wanted)))
    found = []
    for shard, lookup in old.lookups():
        if lookup.numbers is None:
            raise ValueError(f"{shard.lookup_name} has no numbers")  # such a dataset is not asked
        receipts = NumberedReceipts(
            key=lookup.key,
            group=lookup.group,
            split=np.full(len(lookup), old.split, np.int32),
            ids=("",) * len(lookup),
            numbers=lookup.numbers,
            words=receipt_words(lookup.numbers),
        )
        shared = among(receipts.words.ravel(), hashes).reshape(receipts.words.shape)
        rows = np.flatnonzero(shared.any(axis=1))
        if len(rows):
            index = RecordIndex.from_bytes(files.read(files.join(old.directory, shard.index_name)))
            ids = tuple(index.id(row) for row in rows.tolist())
            found.append((replace(receipts.take(rows), ids=ids), shared[rows]))
    if found:
        parts, shared_of = zip(*found, strict=True)
        yield from write_pieces(
            NumberedReceipts.concatenate(parts),
            np.concatenate(shared_of),
            partitions(inputs),
            staging,
        )


def write_pieces(
    receipts: NumberedReceipts,
    counts: npt.NDArray[np.bool_],
    parts: int,
    staging: Staging,
) -> Iterator[tuple[int, ByteRange]]:
    """Writes receipts for each partition that has words of them; `counts` are those that count."""
    partition = receipts.words % np.uint64(parts)
    pieces = {}
    for number in np.unique(partition[counts]).tolist():
        rows = np.flatnonzero((counts & (partition == number)).any(axis=1))
        pieces[number] = receipts.take(rows).to_bytes()
    if not pieces:
        return
    path, offset = _write(staging, b"".join(pieces.values())), 0
    for number, data in pieces.items():
        yield number, (path, offset, len(data))
        offset += len(data)


def compare(
    located: tuple[int, Iterable[ByteRange]], inputs: int
) -> Iterator[tuple[int, list[NearPair]]]:
    """Yields (number, pairs) of the near-duplicates among the receipts of a partition."""
    partition, ranges = located
    # In a fixed order, so that retries see the same.
    parts = [NumberedReceipts.from_bytes(data) for data in files.read_ranges(sorted(ranges))]
    receipts = NumberedReceipts.concatenate(parts)
    wanted = receipts.words % np.uint64(partitions(inputs)) == partition
    gathered: dict[int, list[NearPair]] = {}
    for pair in receipts.pairs(wanted):
        gathered.setdefault(pair.first.key[0] >> (64 - _PAIR_BITS), []).append(pair)
    yield from gathered.items()


def _decide(
    _: bytes,
    *,
    pairs: Sequence[Sequence[NearPair]],
    groups: Sequence[OldGroups],
    policy: NearDuplicatesPolicy,
    staging: Staging,
) -> str:
    """Decides what becomes of all pairs; returns where the Decisions lie."""
    every = [pair for part in pairs for pair in part]
    if policy == "drop":
        return _write(staging, drop_repeats(every).to_bytes())
    old, splits = split_of_groups(groups)
    of_groups = dict(zip(old.tolist(), splits.tolist(), strict=True))
    return _write(staging, unite(every, of_groups).to_bytes())


def _tell(
    pairs: Sequence[NearPair], decisions: str, inputs: int, *, policy: NearDuplicatesPolicy
) -> Iterator[Any]:
    """Yields what became of pairs: NearDuplicate and, tagged, Duplicate."""
    decided = _read_decisions(decisions)
    firsts = np.unique(np.array([pair.first.key[0] for pair in pairs], np.uint64))
    told = decided.dropped if policy == "drop" else decided.refused
    among_these = set(map(tuple, told[among(told[:, 0], firsts)].tolist()))
    for pair in pairs:
        is_told = (*pair.first.key, *pair.second.key) in among_these
        yield NearDuplicate(
            id_hash=pair.second.key[0],
            id=pair.second.id,
            near_duplicate_of=pair.first.id,
            numbers=pair.shared,
            more=pair.more,
            outcome=_OUTCOMES[policy, is_told],
        )
        if policy == "drop" and is_told:
            yield TaggedOutput(
                "dropped",
                Duplicate(
                    bucket=pair.second.key[0] >> range_shift(bucket_count(inputs)),
                    key=np.array(pair.second.key, np.uint64).tobytes(),
                    id=pair.second.id,
                    duplicate_of=pair.first.id,
                    same_labels=None,
                ),
            )


_OUTCOMES = {
    ("drop", True): "dropped",
    ("drop", False): "settled",  # one of them is dropped for a third
    ("group", False): "grouped",
    ("group", True): "refused",
}


def _regroup(located: tuple[int, str], decisions: str, *, staging: Staging) -> tuple[int, str]:
    """Gives the records of a bucket the groups that they are in now: (bucket, path)."""
    bucket, path = located
    references = References.from_bytes(files.read(path))
    decided = _read_decisions(decisions)
    new = decided.groups[among(decided.groups[:, 0], np.unique(references.key[:, 0]))]
    of_key = {(first, second): group for first, second, group in new.tolist()}
    of_group = dict(
        decided.merged[among(decided.merged[:, 0], np.unique(references.group))].tolist()
    )
    if not of_key and not of_group:
        return located
    group = [
        of_key.get((first, second), of_group.get(group, group))
        for (first, second), group in zip(
            references.key.tolist(), references.group.tolist(), strict=True
        )
    ]
    references = replace(references, group=np.array(group, np.uint64))
    return bucket, stage_references(references, staging)


def _splits(_: bytes, decisions: str, groups: Sequence[OldGroups]) -> Iterator[OldGroups]:
    """Yields the splits of groups that old receipts are in, also of those that are made here."""
    yield from groups
    splits = _read_decisions(decisions).splits
    for split in np.unique(splits[:, 1]).tolist():
        yield split, splits[splits[:, 1] == split, 0].tobytes()


@lru_cache(maxsize=1)
def _read_decisions(path: str) -> Decisions:
    return Decisions.from_bytes(files.read(path))


def _write(staging: Staging, data: bytes) -> str:
    """Writes a staging file that is named by its contents; returns its path."""
    path = staging.near_duplicates(hashlib.sha256(data).hexdigest())
    files.write(path, data)
    return path
