"""Shards and listings, written anew without what is to be forgotten."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from apache_beam.pvalue import TaggedOutput

from beam_jobs.forgetting.plan import ListingTask, ShardTask
from beam_jobs.forgetting.row_text import ids_in
from beam_jobs.forgetting.search import damaged, ids_of, read_whole
from beam_jobs.storage import files
from beam_jobs.storage.checksums import ChecksumReader, RunningChecksum
from beam_jobs.writing.listings import json_line
from beam_jobs.writing.shards import ShardWriter, Vocabularies
from schemas.example import decode_example
from schemas.index import RecordIndex
from schemas.manifest import FileChecksum, Shard
from schemas.quarantine import REJECTED_FEATURES
from schemas.receipt import LAYOUT
from schemas.statistics import RecordSummary
from schemas.summary_file import read_summary
from schemas.tfrecord import frame, read_records


@dataclass(frozen=True, kw_only=True)
class RewrittenShard:
    """A shard that was written anew for a task; `shard` takes the place of the task's."""

    task: ShardTask
    shard: Shard


@dataclass(frozen=True, kw_only=True)
class RewrittenListing:
    """A listing that was written anew for a task.

    Attributes:
      task: the task.
      files: name to checksum; none of a listing that has no line left.
      quarantined: reason code to the number of rejected inputs that went.
      duplicates: number of duplicates that went.
      duplicates_with_other_labels: number of those among them whose labels differ.
      near_duplicates: number of pairs of near-duplicates that went.
      unnamed: number of duplicates that stay, but name a record that goes.
    """

    task: ListingTask
    files: Mapping[str, FileChecksum]
    quarantined: Mapping[str, int]
    duplicates: int = 0
    duplicates_with_other_labels: int = 0
    near_duplicates: int = 0
    unnamed: int = 0


def rewrite_shard(
    task: ShardTask, *, directory: str, writer: ShardWriter, vocabularies: Vocabularies
) -> Iterator[Any]:
    """Yields the new shard and, tagged, codes of the records that went and statistics of the rest.

    They are ((generation, split, category), codes) and ((generation, split), RecordSummary).
    """
    path = files.join(directory, task.shard.name)
    index_path = files.join(directory, task.shard.index_name)
    index = RecordIndex.from_bytes(read_whole(index_path, task.shard.index_crc32c))
    kept = np.delete(np.arange(len(index)), task.removed)
    columns = (index.offset[kept].tolist(), index.length[kept].tolist())
    ranges = [(path, offset, length) for offset, length in zip(*columns, strict=True)]
    written, _, summary = writer.write_records(task.split, task.number, ranges, vocabularies)
    removed = np.array(task.removed)
    forgotten = sorted([*task.shard.forgotten, *index.categories[LAYOUT][removed].tolist()])
    yield RewrittenShard(task=task, shard=replace(written.shard, forgotten=tuple(forgotten)))
    yield TaggedOutput("summaries", ((task.generation, task.split), summary))
    for name, codes in index.categories.items():
        yield TaggedOutput("codes", ((task.generation, task.split, name), codes[removed]))


def read_shard_summary(
    part: tuple[int, str, Shard], *, directory: str
) -> tuple[tuple[int, str], RecordSummary]:
    """Reads the statistics of a shard that stays: (generation, split, shard) to their pair."""
    generation, split, shard = part
    path = files.join(directory, shard.summary_name)
    return (generation, split), read_summary(read_whole(path, shard.summary_crc32c))[split]


def rewrite_listing(
    task: ListingTask, *, directory: str, finished: str, ids: frozenset[str]
) -> RewrittenListing:
    """Writes a listing without the inputs that have one of the ids.

    Args:
      task: the listing.
      directory: the dataset directory.
      finished: folder of the new files.
      ids: ids to forget.
    """
    *others, (name, expected) = task.sums.items()
    data = read_whole(files.join(directory, name), expected.crc32c)
    lines = [json.loads(line) for line in data.splitlines()]
    # A near-duplicate's line is about two receipts, and no input's only trace.
    gone = [line for line in lines if ids_of(line, ids) or line.get("near_duplicate_of") in ids]
    kept = [line for line in lines if line not in gone]
    unnamed = [line for line in kept if line.get("duplicate_of") in ids]
    for line in unnamed:
        line["duplicate_of"] = ""
    sums: dict[str, FileChecksum] = {}
    if kept:
        parts: dict[str, Iterable[bytes]] = {task.new_names[-1]: map(json_line, kept)}
        for (name, expected), new_name in zip(others, task.new_names[:-1], strict=True):
            parts[new_name] = _kept_frames(files.join(directory, name), expected, ids)
        sums = {new: _write(files.join(finished, new), part) for new, part in parts.items()}
    duplicates = [line for line in gone if "duplicate_of" in line]
    return RewrittenListing(
        task=task,
        files=sums,
        quarantined=Counter(line["reason"] for line in gone if "reason" in line),
        duplicates=len(duplicates),
        duplicates_with_other_labels=sum(line["same_labels"] is False for line in duplicates),
        near_duplicates=sum("near_duplicate_of" in line for line in gone),
        unnamed=len(unnamed),
    )


def _kept_frames(path: str, expected: FileChecksum, ids: frozenset[str]) -> Iterator[bytes]:
    """Yields the frames of the rejected inputs that stay."""
    reader = ChecksumReader(path)
    try:
        for _, payload in read_records(reader):
            if not ids_in(decode_example(REJECTED_FEATURES, payload), ids):
                yield frame(payload)
    except (OSError, ValueError) as error:
        raise damaged(path, f"can't be read: {error}") from error
    if reader.finish() != expected:
        raise damaged(path, "has another checksum than in the manifest")


def _write(path: str, parts: Iterable[bytes]) -> FileChecksum:
    checksum = RunningChecksum()
    with files.create(path) as file:
        for part in parts:
            file.write(part)
            checksum.update(part)
    return checksum.result()
