"""The publication of a version without what was forgotten."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from beam_jobs.errors import TRY_AGAIN, BuildError
from beam_jobs.forgetting.plan import ForgetPlan
from beam_jobs.forgetting.rewrite import RewrittenListing, RewrittenShard
from beam_jobs.options import ForgetOptions
from beam_jobs.sharding.splits import IntArray
from beam_jobs.storage import files
from beam_jobs.storage.checksums import checksum
from beam_jobs.writing.output import (
    delete_unlisted,
    is_published,
    read_centroids,
    read_excluded,
    read_least_certain,
    read_manifest,
    read_spellings,
    read_summary_of,
)
from beam_jobs.writing.publish import move_version_into_place
from schemas.file_names import (
    centroids_name,
    excluded_name,
    least_certain_name,
    schema_name,
    spellings_name,
    statistics_name,
    summary_name,
)
from schemas.manifest import Generation, Manifest, Split
from schemas.receipt import LAYOUT
from schemas.spellings import Spellings
from schemas.statistics import RecordSummary
from schemas.summary_file import summary_text
from schemas.tfdv import schema_text, statistics_bytes

RemovedCodes = Mapping[tuple[int, str, str], IntArray]  # (generation, split, category) to counts
Summaries = Mapping[tuple[int, str], RecordSummary]  # (generation, split) to statistics

_MIN_OF_CENTROID = 20  # receipts that a layout needs to keep its centroid when it loses some


@dataclass(frozen=True, kw_only=True)
class ForgetReport:
    """Numbers of what was forgotten, for its summary.

    Attributes:
      records: records that went, those damaged included.
      damaged: records that went because they were excluded and their shard was written anew.
      rejected: rejected inputs that went from the quarantine.
      duplicates: inputs that went from the list of duplicates.
      unnamed: duplicates that stay in that list, but no longer name their record, which went.
      shards: shards that were written anew.
      ended: versions that ended.
      missing: ids that were nowhere.
    """

    records: int = 0
    damaged: int = 0
    rejected: int = 0
    duplicates: int = 0
    unnamed: int = 0
    shards: int = 0
    ended: tuple[int, ...] = ()
    missing: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """The file's contents."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "ForgetReport":
        """Inverse of `to_bytes`."""
        values = json.loads(data)
        return cls(**values | {name: tuple(values[name]) for name in ("ended", "missing")})


@dataclass(frozen=True, kw_only=True)
class ForgetPublisher:
    """Publishes what is left of the newest version as the next one."""

    options: ForgetOptions

    def publish(
        self,
        plan: ForgetPlan,
        shards: Sequence[RewrittenShard],
        removed: RemovedCodes,
        summaries: Summaries,
        listings: Sequence[RewrittenListing],
    ) -> None:
        """Makes the manifest, moves everything into place and deletes what no version names.

        Args:
          plan: the plan.
          shards: what became of the plan's shards.
          removed: the values of the records that went.
          summaries: statistics of each part of a split in which a shard was written anew.
          listings: what became of the plan's listings.

        Raises:
          BuildError: shards, listings or records were lost.
        """
        options, base = self.options, self.options.base
        if base is None:
            raise ValueError("there is no dataset to forget anything of")
        if is_published(options):  # by another attempt, which a runner took for lost
            delete_unlisted(options.output)
            return
        if len(shards) != len(plan.shards) or len(listings) != len(plan.listings):
            raise BuildError(f"not all files were written anew: {TRY_AGAIN}")
        old = read_manifest(base.directory, base.version)
        excluded = read_excluded(base.directory, old)
        damaged = sum(len(excluded.positions(one.task.shard.name)) for one in shards)
        report = ForgetReport(
            records=sum(len(one.task.removed) for one in shards),
            damaged=damaged,
            rejected=sum(sum(one.quarantined.values()) for one in listings),
            duplicates=sum(one.duplicates for one in listings),
            unnamed=sum(one.unnamed for one in listings),
            shards=len(shards),
            ended=plan.ended,
            missing=plan.missing,
        )
        files.write(options.staging.report, report.to_bytes())
        if not plan.ended:
            return
        gone = {one.task.shard.name for one in shards}
        damaged_ids = {record.id for name in gone for record in excluded.shards.get(name, ())}
        manifest, described = self._describe(
            old, shards, removed, summaries, listings, ids={*options.ids, *damaged_ids}
        )
        if left := {name: own for name, own in excluded.shards.items() if name not in gone}:
            carried = replace(excluded, dataset_digest=manifest.digest, shards=left)
            described[excluded_name(manifest.version)] = carried.to_json().encode()
        move_version_into_place(
            manifest,
            described,
            [one.shard for one in shards],
            [name for one in listings for name in one.files],
            staging=options.staging,
            launch=options.launch,
            request=options.request,
            base=base,
            ended=plan.ended,
        )
        delete_unlisted(options.output)

    def _describe(
        self,
        old: Manifest,
        shards: Sequence[RewrittenShard],
        removed: RemovedCodes,
        summaries: Summaries,
        listings: Sequence[RewrittenListing],
        *,
        ids: Collection[str],
    ) -> tuple[Manifest, dict[str, bytes]]:
        """Makes the manifest, and the files about the records: name to bytes.

        `ids` are those of what went; other arguments are as in `publish`.
        """
        version, output = self.options.version, self.options.output
        generations = []
        described: dict[str, bytes] = {}
        statistics = []  # of each generation
        for at, generation in enumerate(old.generations):
            own = [one for one in shards if one.task.generation == at]
            generation = _with_listings(
                generation, [one for one in listings if one.task.generation == at]
            )
            summary = read_summary_of(output, old.generations[at])
            if own:
                summary |= {split: one for (of, split), one in summaries.items() if of == at}
                name = summary_name(version, of=generation.version)
                described[name] = summary_text(summary).encode()
                others = {
                    each: one
                    for each, one in generation.files.items()
                    if each != generation.summary_name
                }
                generation = replace(
                    _with_shards(generation, at, own, removed),
                    files={**others, name: checksum(described[name])},
                )
            generations.append(generation)
            statistics.append(summary)
        vocabularies = _without_forgotten(old, generations)
        manifest = replace(
            old, version=version, generations=tuple(generations), vocabularies=vocabularies
        )
        own_files = {
            schema_name(version): schema_text(old.features, vocabularies).encode(),
            statistics_name(version): statistics_bytes(
                old.features,
                {
                    name: (
                        RecordSummary.merged(summary[name] for summary in statistics),
                        split.category_counts,
                    )
                    for name, split in manifest.splits.items()
                },
                vocabularies,
            ),
        }
        stay = _with_centroids(manifest, _layouts_with_less(old, removed))
        if centroids := read_centroids(output, old):
            own_files[centroids_name(version)] = centroids.only(stay).to_bytes()
        if least_certain := read_least_certain(output, old):
            # How similar a receipt is to a centroid tells something of the centroid.
            lost = set(manifest.vocabularies[LAYOUT]) - stay
            listed = least_certain.without(ids=ids, layouts=lost)
            own_files[least_certain_name(version)] = listed.to_json().encode()
        if merged := read_spellings(output, old):
            # A receipt that is gone may have been the one that had a spelling: which one had it is
            # not known, so all spellings of a layout go with the first of its receipts.
            gone = _layouts_with_less(old, removed)
            names = {name: by for name, by in merged.names.items() if by not in gone}
            own_files[spellings_name(version)] = Spellings(names=names).to_json().encode()
        sums = {name: checksum(data) for name, data in own_files.items()}
        return replace(manifest, files=sums), {**own_files, **described}


def _with_centroids(manifest: Manifest, lost: Collection[str]) -> set[str]:
    """Names of the layouts whose centroids stay; `lost` are those that have lost records.

    A centroid is a mean. One receipt of many can't be told from it, but one of few could.
    """
    records = np.sum([split.layout_counts for split in manifest.splits.values()], axis=0)
    named = zip(manifest.vocabularies[LAYOUT], records.tolist(), strict=True)
    return {name for name, count in named if count >= _MIN_OF_CENTROID or name not in lost}


def _layouts_with_less(old: Manifest, removed: RemovedCodes) -> set[str]:
    """Names of the layouts of which records went."""
    layouts = old.vocabularies[LAYOUT]
    return {
        layouts[id_]
        for (_, _, category), counts in removed.items()
        if category == LAYOUT
        for id_ in np.flatnonzero(counts).tolist()
    }


def _with_listings(generation: Generation, listings: Sequence[RewrittenListing]) -> Generation:
    """Returns a generation with the listings that were written anew, and their counts."""
    files_, counts = dict(generation.files), generation.counts
    quarantined = Counter(counts.quarantined)
    for one in listings:
        for name in one.task.sums:
            del files_[name]
        files_ |= one.files
        quarantined.subtract(one.quarantined)
        gone = sum(one.quarantined.values()) + one.duplicates
        others = counts.duplicates_with_other_labels - one.duplicates_with_other_labels
        counts = replace(
            counts,
            duplicates=counts.duplicates - one.duplicates,
            near_duplicates=counts.near_duplicates - one.near_duplicates,
            duplicates_with_other_labels=others,
            quarantined=dict(+quarantined),  # without those that are 0
            forgotten=counts.forgotten + gone,
        )
    return replace(generation, files=files_, counts=counts)


def _with_shards(
    generation: Generation, at: int, shards: Sequence[RewrittenShard], removed: RemovedCodes
) -> Generation:
    """Returns a generation, number `at`, with the shards that were written anew, and its counts."""
    splits = dict(generation.splits)
    for split, part in splits.items():
        own = [one for one in shards if one.task.split == split]
        if not own:
            continue
        replaced = list(part.shards)
        for one in own:
            replaced[one.task.position] = one.shard
        counts = {
            name: _less(values, removed[at, split, name])
            for name, values in part.category_counts.items()
        }
        splits[split] = Split(shards=tuple(replaced), category_counts=counts)
    gone = sum(len(one.task.removed) for one in shards)
    left = sum(split.records for split in splits.values())
    counted = sum(int(split.layout_counts.sum()) for split in splits.values())
    before = generation.counts
    if not left == counted == before.written - gone:
        raise BuildError(f"{left} records are left, {before.written - gone} expected: {TRY_AGAIN}")
    counts_left = replace(before, written=left, forgotten=before.forgotten + gone)
    return replace(generation, splits=splits, counts=counts_left)


def _less(counts: Sequence[int], gone: IntArray) -> tuple[int, ...]:
    left = np.array(counts, np.int64)
    left[: len(gone)] -= gone
    return tuple(left.tolist())


def _without_forgotten(
    old: Manifest, generations: Sequence[Generation]
) -> dict[str, tuple[str, ...]]:
    """Returns the vocabularies, without the values that only forgotten records had.

    Ids must hold, so another name takes the place of such a value: of "aral kiosk bakery", whose
    only record of kiosk went, is left "aral forgotten-1 bakery".
    """
    vocabularies = {}
    for name, values in old.vocabularies.items():
        before, after = (
            _records_of_values(each, name, len(values)) for each in (old.generations, generations)
        )
        changed = list(values)
        for id_ in np.flatnonzero((before > 0) & (after == 0)).tolist():
            changed[id_] = f"forgotten-{id_}"
            while changed[id_] in values:  # a name that somebody's label has
                changed[id_] += "-"
        vocabularies[name] = tuple(changed)
    return vocabularies


def _records_of_values(generations: Sequence[Generation], name: str, size: int) -> IntArray:
    total = np.zeros(size, np.int64)
    for generation in generations:
        for split in generation.splits.values():
            counts = split.category_counts[name]
            total[: len(counts)] += np.array(counts, np.int64)
    return total
