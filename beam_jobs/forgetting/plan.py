"""The plan of a forgetting: which files are written anew, under which names, and what ends."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from beam_jobs.forgetting.search import Found
from beam_jobs.options import ForgetOptions
from beam_jobs.sources.names import in_nfc
from schemas.excluded import Excluded
from schemas.file_names import DUPLICATES, NEAR_DUPLICATES, QUARANTINE, is_listing, version_file
from schemas.manifest import FileChecksum, Manifest, Shard


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """A shard that is written anew without some records.

    Attributes:
      generation: position of its generation in the manifest.
      split: its split.
      position: its position among the shards of the split in this generation.
      shard: the shard.
      number: position of the new one among those of the split that are written.
      removed: rows of its index that go, ascending.
    """

    generation: int
    split: str
    position: int
    shard: Shard
    number: int
    removed: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ListingTask:
    """A listing that is written anew without some lines; one of the quarantine is two files.

    Attributes:
      generation: position of its generation in the manifest.
      sums: its files, name to checksum; that with the lines is the last.
      new_names: the files that replace them.
    """

    generation: int
    sums: Mapping[str, FileChecksum]
    new_names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ForgetPlan:
    """Everything that follows from what was found.

    Attributes:
      shards: shards of the newest version that are written anew.
      listings: listings of the newest version that are written anew.
      ended: numbers of the versions that hold what is to be forgotten, ascending.
      missing: ids that no file holds, sorted.
    """

    shards: tuple[ShardTask, ...]
    listings: tuple[ListingTask, ...]
    ended: tuple[int, ...]
    missing: tuple[str, ...]


def make_plan(
    manifests: Sequence[Manifest],
    found: Sequence[Found],
    excluded: Excluded,
    options: ForgetOptions,
) -> ForgetPlan:
    """Makes the plan.

    Args:
      manifests: those of all versions, the newest last.
      found: what `search` found in all their files.
      excluded: records that the newest version leaves out. They go with the shards that are
        written anew, as their bytes can't be: with `options.excluded`, all of them go.
      options: options of the job.
    """
    newest = manifests[-1]
    rows = {one.name: one.positions for one in found if not is_listing(one.name)}
    shards = _shard_tasks(newest, rows, excluded, every_excluded=options.excluded)
    held_by = {one.name for one in found} | {task.shard.index_name for task in shards}
    ids_present = {in_nfc(id_) for file in found for id_ in file.ids}
    return ForgetPlan(
        shards=tuple(shards),
        listings=tuple(_listing_tasks(newest, held_by, version=options.version)),
        ended=tuple(one.version for one in manifests if one.file_names & held_by),
        missing=tuple(sorted({in_nfc(id_) for id_ in options.ids} - ids_present)),
    )


def _shard_tasks(
    newest: Manifest,
    rows: Mapping[str, tuple[int, ...]],
    excluded: Excluded,
    *,
    every_excluded: bool,
) -> list[ShardTask]:
    tasks = []
    written = dict.fromkeys(newest.splits, 0)
    for at, generation in enumerate(newest.generations):
        for split, part in generation.splits.items():
            for position, shard in enumerate(part.shards):
                damaged = excluded.positions(shard.name)
                named = rows.get(shard.index_name, ())
                if not (named or (damaged and every_excluded)):
                    continue
                tasks.append(
                    ShardTask(
                        generation=at,
                        split=split,
                        position=position,
                        shard=shard,
                        number=written[split],
                        removed=tuple(sorted({*named, *damaged})),
                    )
                )
                written[split] += 1
    return tasks


def _listing_tasks(
    newest: Manifest, held_by: Collection[str], *, version: int
) -> Iterator[ListingTask]:
    """Yields the listings to be written anew.

    Those of all generations are numbered as one: of two files of the first and one of the second
    that a version 4 replaces, the third is versions/00004/….jsonl-00002-of-00003.
    """
    lines = [
        (at, name)
        for at, generation in enumerate(newest.generations)
        for name in sorted(generation.files)
        if name in held_by
    ]
    for folder, stems in (
        (QUARANTINE, ("rejected.tfrecord", "rejected.jsonl")),
        (DUPLICATES, ("duplicates.jsonl",)),
        (DUPLICATES, (f"{NEAR_DUPLICATES}.jsonl",)),
    ):
        own = [(at, name) for at, name in lines if f"/{folder}/{stems[-1]}-" in name]
        for number, (at, name) in enumerate(own):
            suffix = f"{number:05d}-of-{len(own):05d}"
            names = [name.replace(stems[-1], stem) for stem in stems]
            yield ListingTask(
                generation=at,
                sums={each: newest.generations[at].files[each] for each in names},
                new_names=tuple(
                    version_file(version, f"{folder}/{stem}-{suffix}") for stem in stems
                ),
            )
