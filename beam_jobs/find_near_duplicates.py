"""Near-duplicates: receipts that were photographed, scanned or sent twice.

Receipts with a word in common (`beam_jobs.near_duplicates.candidates`) meet on one worker. Words
are spread over partitions by their hash: a bucket writes the receipts that have words of a
partition to a staging file, and a runner shuffles only where they lie. The pairs go through staging
files, too: each exchange of a cluster takes network buffers, of which Flink has few.

A worker that compares a partition holds some 131,000 words, or twice as many where images are
compared, and 500 bytes for each receipt that has one of them; a word that many receipts have makes
its partition larger. One worker unites all pairs to groups, with some 1,600 bytes for each pair:
3.2 GB for two million.
"""

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
from apache_beam.pvalue import AsList, AsSingleton, TaggedOutput

from beam_jobs.near_duplicates.candidates import KIND_WORDS, NO_WORD, receipt_words
from beam_jobs.near_duplicates.receipts import FingerprintedReceipts
from beam_jobs.near_duplicates.unite import (
    NEW,
    Decisions,
    Dropped,
    NearDuplicatesPolicy,
    NearPair,
    PairKeys,
    drop_repeats,
    pair_of_kept,
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
from beam_jobs.sharding.duplicates import Duplicate
from beam_jobs.storage import files
from beam_jobs.storage.checksums import checksum
from beam_jobs.storage.files import ByteRange
from beam_jobs.writing.listings import ListedFile, ListedPairs, json_line
from schemas.file_names import DUPLICATES, NEAR_DUPLICATES, version_file
from schemas.fingerprints import Fingerprints
from schemas.index import RecordIndex

_PARTITION_WORDS = 1 << 17  # compared by one worker
_LINES_PER_FILE = 100_000


@dataclass(frozen=True, kw_only=True)
class United(ListedPairs):
    """List of the pairs of near-duplicates, and the path of what was decided about them."""

    decisions: str


@dataclass(frozen=True, kw_only=True)
class FoundNearDuplicates:
    """Collections that `find_near_duplicates` makes.

    Attributes:
      united: United; None if none are looked for.
      dropped: Duplicate, the receipts to be dropped; None if all are kept.
      groups: OldGroups, the splits of groups that the dataset has already; None for a new one.
    """

    united: AsSingleton | None = None
    dropped: beam.PCollection | None = None
    groups: beam.PCollection | None = None


@dataclass(frozen=True, kw_only=True)
class NearDuplicatesOptions:
    """Options of the search.

    Attributes:
      policy: what becomes of near-duplicates, not `off`.
      staging: where the staging files go.
      directory: the directory that is written.
      version: the version that is made.
    """

    policy: NearDuplicatesPolicy
    staging: Staging
    directory: str
    version: int


def fingerprinted_receipts(chunks: Sequence[PreparedChunk]) -> FingerprintedReceipts:
    """Takes the fingerprints of all accepted records of some chunks."""
    key = np.concatenate([chunk.references.key for chunk in chunks])
    fingerprints = Fingerprints.concatenate(chunk.fingerprints for chunk in chunks)
    return FingerprintedReceipts(
        key=key,
        group=np.concatenate([chunk.references.group for chunk in chunks]),
        split=np.full(len(key), NEW, np.int32),
        ids=tuple(id_ for chunk in chunks for id_ in chunk.ids),
        fingerprints=fingerprints,
        words=receipt_words(fingerprints),
    )


def write_words(receipts: FingerprintedReceipts, staging: Staging) -> str:
    """Writes the words of receipts to a staging file; returns its path."""
    return write_hashes(staging, receipts.words[receipts.words != NO_WORD])


def find_near_duplicates(
    pieces: beam.PCollection[tuple[int, ByteRange]],
    words: beam.PCollection[str],
    old: beam.PCollection[OldShards] | None,
    dropped: beam.PCollection[tuple[int, bytes]] | None,
    groups: beam.PCollection[OldGroups] | None,
    inputs: AsSingleton,
    options: NearDuplicatesOptions,
) -> FoundNearDuplicates:
    """Finds near-duplicates among the inputs, and of those in the dataset appended to.

    Args:
      pieces: of `write_pieces`.
      words: paths of `write_words`.
      old: shards of the dataset that is appended to; None for a new one.
      dropped: (bucket, keys of its exact duplicates); None if none are looked for.
      groups: the splits of groups that the dataset has already; None for a new one.
      inputs: number of inputs.
      options: options of the search.
    """
    pipeline = pieces.pipeline
    if old is not None:
        old_pieces = old | "OldByWord" >> beam.FlatMap(
            _old_pieces, wanted=AsList(words), inputs=inputs, staging=options.staging
        )
        pieces = (pieces, old_pieces) | "NewAndOldPieces" >> beam.Flatten()
    pairs = (
        pieces
        | "ByPartition" >> beam.GroupByKey()
        | "Compare" >> beam.FlatMap(_write_pairs, inputs=inputs, staging=options.staging)
    )  # path
    found = (
        pipeline
        | "OnceCompared" >> beam.Impulse()
        | "Unite"
        >> beam.FlatMap(
            _unite,
            paths=AsList(pairs),
            dropped=() if dropped is None else AsList(dropped | "Keys" >> beam.Values()),
            groups=() if groups is None else AsList(groups),
            inputs=inputs,
            options=options,
        ).with_outputs("dropped", main="united")
    )
    united = AsSingleton(found["united"])
    if groups is not None:
        groups = (
            pipeline
            | "OnceUnited" >> beam.Impulse()
            | "SplitsOfGroups" >> beam.FlatMap(_splits, united=united, groups=AsList(groups))
        )
    dropped = found["dropped"] if options.policy == "drop" else None
    return FoundNearDuplicates(united=united, dropped=dropped, groups=groups)


def regroup(located: tuple[int, str], united: United, *, staging: Staging) -> tuple[int, str]:
    """Gives the records of a bucket the groups that they are in now: (bucket, path)."""
    bucket, path = located
    references = References.from_bytes(files.read(path))
    decided = _read_decisions(united.decisions)
    new = decided.groups[among(decided.groups[:, 0], np.unique(references.key[:, 0]))]
    of_key = {(first, second): group for first, second, group in new.tolist()}
    merged = decided.merged[among(decided.merged[:, 0], np.unique(references.group))]
    of_group = dict(merged.tolist())
    if not of_key and not of_group:
        return located
    columns = zip(references.key.tolist(), references.group.tolist(), strict=True)
    group = [
        of_key.get((first, second), of_group.get(group, group))
        for (first, second), group in columns
    ]
    references = replace(references, group=np.array(group, np.uint64))
    return bucket, stage_references(references, staging)


def partitions(inputs: int) -> int:
    """Number of partitions of the words of so many inputs."""
    return max(1, inputs * KIND_WORDS // _PARTITION_WORDS)


def _old_pieces(
    old: OldShards, wanted: Sequence[str], inputs: int, *, staging: Staging
) -> Iterator[tuple[int, ByteRange]]:
    """Yields (partition, where old receipts lie) of those that share a word with a new one."""
    hashes = read_hashes(tuple(sorted(wanted)))
    found = []
    for shard, lookup in old.lookups():
        if lookup.fingerprints is None:
            raise ValueError(
                f"{shard.lookup_name} has no fingerprints"
            )  # such a dataset is not asked
        words = receipt_words(lookup.fingerprints)
        rows = np.flatnonzero(among(words.ravel(), hashes).reshape(words.shape).any(axis=1))
        if len(rows):
            index = RecordIndex.from_bytes(files.read(files.join(old.directory, shard.index_name)))
            found.append(
                FingerprintedReceipts(
                    key=lookup.key[rows],
                    group=lookup.group[rows],
                    split=np.full(len(rows), old.split, np.int32),
                    ids=tuple(index.id(row) for row in rows.tolist()),
                    fingerprints=lookup.fingerprints.take(rows),
                    words=words[rows],
                )
            )
    if found:
        receipts = FingerprintedReceipts.concatenate(found)
        shared = among(receipts.words.ravel(), hashes).reshape(receipts.words.shape)
        yield from write_pieces(receipts, shared, partitions(inputs), staging)


def write_pieces(
    receipts: FingerprintedReceipts,
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


def compare(located: tuple[int, Iterable[ByteRange]], inputs: int) -> list[NearPair]:
    """Finds the near-duplicates among the receipts of a partition."""
    partition, ranges = located
    # In a fixed order, so that retries see the same.
    parts = [FingerprintedReceipts.from_bytes(data) for data in files.read_ranges(sorted(ranges))]
    receipts = FingerprintedReceipts.concatenate(parts)
    return receipts.pairs(receipts.words % np.uint64(partitions(inputs)) == partition)


def _write_pairs(
    located: tuple[int, Iterable[ByteRange]], inputs: int, *, staging: Staging
) -> Iterator[str]:
    """Yields where the pairs of a partition lie, if there are any."""
    if pairs := compare(located, inputs):
        yield _write(staging, json.dumps(sorted(pairs)).encode())


def _read_pairs(paths: Sequence[str]) -> list[NearPair]:
    """Reads the pairs of all partitions, each once: those with several words come several times.

    Where the word of one partition is evidence for what the numbers of a pair tell, and that of
    another is not, the numbers decide.
    """
    pairs: dict[PairKeys, NearPair] = {}
    for data in files.read_ranges([(path, 0, sys.maxsize) for path in sorted(paths)]):
        for pair in map(NearPair.from_json, json.loads(data)):
            if pair.keys not in pairs or pair.bits < pairs[pair.keys].bits:
                pairs[pair.keys] = pair
    return sorted(pairs.values())


def _unite(
    _: bytes,
    *,
    paths: Sequence[str],
    dropped: Sequence[bytes],
    groups: Sequence[OldGroups],
    inputs: int,
    options: NearDuplicatesOptions,
) -> Iterator[Any]:
    """Decides what becomes of all pairs: yields United and, tagged, Duplicate."""
    # Of the exact duplicates among them, nothing is left to be decided.
    gone = set(np.frombuffer(b"".join(dropped), "V16").tolist())
    pairs = [
        pair
        for pair in _read_pairs(paths)
        if gone.isdisjoint(np.array(key, np.uint64).tobytes() for key in pair.keys)
    ]
    dropped_for = drop_repeats(pairs) if options.policy == "drop" else {}
    kept_pairs = {pair: pair_of_kept(pair, dropped_for) for pair in pairs}
    old, splits = split_of_groups(groups)
    decided = unite(
        [pair for pair in kept_pairs.values() if pair],
        dict(zip(old.tolist(), splits.tolist(), strict=True)),
    )
    refused = set(map(tuple, decided.refused.tolist()))
    lines = [
        {
            "id": pair.second.id,
            "near_duplicate_of": pair.first.id,
            **_evidence(pair),
            "outcome": _outcome(pair, kept_pair, dropped_for, refused),
        }
        for pair, kept_pair in kept_pairs.items()
    ]
    for receipt, kept_receipt in sorted(dropped_for.items()):
        yield TaggedOutput(
            "dropped",
            Duplicate(
                bucket=receipt.key[0] >> range_shift(bucket_count(inputs)),
                key=np.array(receipt.key, np.uint64).tobytes(),
                id=receipt.id,
                duplicate_of=kept_receipt.id,
                same_labels=None,
            ),
        )
    yield United(
        decisions=_write(options.staging, decided.to_bytes()),
        listings=tuple(_write_listings(lines, options)),
        pairs=len(pairs),
    )


def _outcome(
    pair: NearPair, kept_pair: NearPair | None, dropped: Dropped, refused: Set[tuple[int, ...]]
) -> str:
    """Tells the outcome of a pair.

    Args:
      pair: the pair.
      kept_pair: the receipts that are kept for its two receipts; None if they are one receipt, or
        both were in the dataset before.
      dropped: each receipt that is dropped, and the receipt that is kept for it.
      refused: keys of the pairs whose receipts stay apart.
    """
    if dropped.get(pair.second) == pair.first:
        return "dropped"
    if kept_pair is None:
        return "settled"  # one of the two is dropped for a third receipt, or both are
    # Its group would be too large, or in two splits.
    return "refused" if (*kept_pair.first.key, *kept_pair.second.key) in refused else "grouped"


def _evidence(pair: NearPair) -> dict[str, int]:
    if pair.bits < 0:
        return {"numbers": pair.shared, "misread": pair.misread, "more": pair.more}
    return {"differing_bits": pair.bits}


def _write_listings(
    lines: Sequence[Mapping[str, Any]], options: NearDuplicatesOptions
) -> Iterator[ListedFile]:
    """Writes the list of pairs; yields its files."""
    starts = range(0, len(lines), _LINES_PER_FILE)
    for number, start in enumerate(starts):
        suffix = f"{number:05d}-of-{len(starts):05d}"
        path = version_file(options.version, f"{DUPLICATES}/{NEAR_DUPLICATES}.jsonl-{suffix}")
        data = b"".join(map(json_line, lines[start : start + _LINES_PER_FILE]))
        files.write(files.join(options.directory, path), data)
        yield path, checksum(data)


def _splits(_: bytes, united: United, groups: Sequence[OldGroups]) -> Iterator[OldGroups]:
    """Yields the splits of groups that old receipts are in, also of those that are made here."""
    yield from groups
    splits = _read_decisions(united.decisions).splits
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
