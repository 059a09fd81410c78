"""Time and memory of the stages of a build that one worker runs for all receipts.

The build's own classes run, each stage in a process of its own: planning splits and shards, dealing
the records of some buckets, uniting near-duplicates (one receipt in fifty has a second photo), the
last checks and the manifest, the summary, and the checks of the whole dataset that verify makes.
Their input is made up and holds no image: records are numbered layout by layout, and of B buckets,
bucket b holds the records b, b + B, b + 2B, …
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from beam_jobs.running.import_messages import hide_import_messages

if __name__ in ("__main__", "__mp_main__"):  # the program, and the processes that it measures in
    hide_import_messages()

from beam_jobs.near_duplicates.unite import NEW, NearPair, PairedReceipt
from beam_jobs.near_duplicates.unite import unite as unite_pairs
from beam_jobs.prepare.chunks import bucket_count
from beam_jobs.running.report import plan_summary
from beam_jobs.sharding.deal import BucketCounts, BucketStarts, Plan, assign, make_plan
from beam_jobs.sharding.histograms import check_layouts
from beam_jobs.verification.shard import ShardCheck, share_faults
from beam_jobs.verification.workers import ShardTask
from beam_jobs.verify import Totals
from beam_jobs.writing.description import Describer, WrittenRecords
from beam_jobs.writing.publish import check_deal
from beam_jobs.writing.shards import WrittenShard
from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.timing import in_new_process
from benchmarks.plan_scale import IntArray, peak_mb
from schemas.bins import bins_of
from schemas.file_names import shard_name
from schemas.manifest import Counts, Generation, Manifest, Shard, Split
from schemas.receipt import LAYOUT, receipt_features
from schemas.statistics import FeatureSummary, RecordSummary
from schemas.versions import FIRST_VERSION

_SPLITS = {"train": 0.9, "validation": 0.1}
_RECORD_BYTES = 104_857  # 1,280 records per shard
_DEALT_BUCKETS = 20


@dataclass(frozen=True, kw_only=True)
class Case:
    """Receipts to plan: so many rows of so many layouts, in groups of two and more or in none."""

    rows: int
    layouts: int
    groups: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.layouts <= self.rows:
            raise ValueError(f"{self.rows} rows can't have {self.layouts} layouts")

    def layout_ends(self) -> IntArray:
        """End of each layout among the numbers of all records, by Zipf's law; [layouts]."""
        weights = 1 / np.arange(1, self.layouts + 1)
        shared = (self.rows - self.layouts) * np.cumsum(weights / weights.sum())
        ends = np.floor(shared + 0.5).astype(np.int64) + np.arange(1, self.layouts + 1)
        ends[-1] = self.rows
        return ends

    def names(self) -> list[str]:
        """Names of the layouts."""
        return [f"layout-{number:07d}" for number in range(self.layouts)]

    def bucket(
        self, number: int, ends: IntArray
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
        """Group and layout of each record of a bucket."""
        records = np.arange(number, self.rows, bucket_count(self.rows))
        group = np.zeros(len(records), np.uint64)
        if self.groups:
            rng = np.random.default_rng(number)
            chosen = rng.integers(1, self.groups + 1, len(records)).astype(np.uint64)
            group = chosen * np.uint64(0x9E3779B97F4A7C15)  # spread like the hash of a name
        return group, np.searchsorted(ends, records, side="right").astype(np.int32)

    def bucket_counts(self) -> Iterator[BucketCounts]:
        """Counts of all buckets."""
        ends = self.layout_ends()
        for number in range(bucket_count(self.rows)):
            group, layout = self.bucket(number, ends)
            yield BucketCounts.of(
                number, group=group, layout=layout, size_bytes=len(layout) * _RECORD_BYTES
            )

    def plan(self) -> Plan:
        """The plan of as many receipts of each layout, without groups."""
        bucket = BucketCounts(
            number=0,
            size_bytes=self.rows * _RECORD_BYTES,
            group=np.zeros(self.layouts, np.uint64),
            layout=np.arange(self.layouts, dtype=np.int32),
            count=np.diff(self.layout_ends(), prepend=0).astype(np.int32),
        )
        return make_plan([bucket], layouts=self.layouts, fractions=_SPLITS)[0]


def plan(case: Case) -> dict[str, float]:
    """Plans the splits and shards of all records, and the starts of each bucket."""
    bucket_counts = list(case.bucket_counts())

    def run() -> None:
        _, starts = make_plan(bucket_counts, layouts=case.layouts, fractions=_SPLITS)
        for _, each in starts:
            each.to_bytes()

    return _measured(run)


def deal(case: Case) -> dict[str, float]:
    """Assigns split and shard to each record of some buckets, which alone are planned."""
    ends = case.layout_ends()
    numbers = range(min(_DEALT_BUCKETS, bucket_count(case.rows)))
    buckets = [case.bucket(number, ends) for number in numbers]
    bucket_counts = [
        BucketCounts.of(number, group=group, layout=layout)
        for number, (group, layout) in enumerate(buckets)
    ]
    made, starts = make_plan(bucket_counts, layouts=case.layouts, fractions=_SPLITS)
    encoded = [each.to_bytes() for _, each in starts]

    def run() -> None:
        for (group, layout), data in zip(buckets, encoded, strict=True):
            own = BucketStarts.from_bytes(data, splits=len(_SPLITS))
            assign(made, own, group=group, layout=layout)

    measured = _measured(run)
    return measured | {"CPU s": measured["CPU s"] / len(buckets)}


def unite(case: Case) -> dict[str, float]:
    """Makes groups of the pairs of near-duplicates."""

    def run() -> None:
        keys = np.random.default_rng(0).integers(0, 1 << 64, (case.rows // 50, 4), np.uint64)
        pairs = [
            NearPair(first=_paired((a, b)), second=_paired((c, d)), shared=9, more=0)
            for a, b, c, d in keys.tolist()
        ]
        decisions = unite_pairs(pairs, {})
        assert len(decisions.groups) == 2 * len(pairs)
        decisions.to_bytes()

    return _measured(run)


def _paired(key: tuple[int, int]) -> PairedReceipt:
    return PairedReceipt(is_new=True, key=key, group=0, split=NEW, id=f"receipt-{key[0]}")


def publish(case: Case) -> dict[str, float]:
    """The last checks, the manifest and what describes the records."""
    made = case.plan()
    shards = [
        WrittenShard(split=name, number=number, shard=shard)
        for split, name in enumerate(made.split_names)
        for number, shard in enumerate(_shards(made, split))
    ]
    summaries = {
        name: _record_summary(int(made.counts[:, at].sum()))
        for at, name in enumerate(made.split_names)
    }
    inputs = Counts(inputs=case.rows, written=case.rows, duplicates=0, quarantined={})
    counts = {(name, LAYOUT): made.counts[:, at] for at, name in enumerate(made.split_names)}
    vocabularies = {LAYOUT: tuple(case.names())}
    describer = Describer(
        output="",
        version=FIRST_VERSION,
        labels=(),
        split_names=made.split_names,
        build_options={"splits": _SPLITS},
    )
    records = WrittenRecords(
        shards=shards, summaries=summaries, category_counts=counts, vocabularies=vocabularies
    )

    def run() -> None:
        check_deal(made, records)
        manifest, _ = describer.describe(records, inputs, "00" * 32, listings={})
        manifest.to_json()

    return _measured(run)


def summary(case: Case) -> dict[str, float]:
    """The summary of a build or a dry run."""
    made = case.plan()
    outline = {
        "inputs": case.rows,
        "rejected": {},
        "layouts": case.names(),
        "counts": made.counts.tolist(),
        "old_counts": np.zeros_like(made.counts).tolist(),
        "known": 0,
        "shards": made.shards.tolist(),
    }
    return _measured(lambda: plan_summary(outline, _SPLITS, "out"))


def verify(case: Case) -> dict[str, float]:
    """Each shard's layouts against the plan, in the build and in verify, and verify's sums."""
    made = case.plan()
    names = case.names()
    generation = Generation(
        version=FIRST_VERSION,
        splits={
            name: Split(
                shards=tuple(_shards(made, split)),
                category_counts={LAYOUT: tuple(made.counts[:, split].tolist())},
            )
            for split, name in enumerate(made.split_names)
        },
        counts=Counts(inputs=case.rows, written=case.rows, duplicates=0, quarantined={}),
        source_fingerprint="",
        written_by="benchmarks",
    )
    manifest = Manifest(
        version=FIRST_VERSION,
        features=receipt_features(),
        labels=(),
        vocabularies={LAYOUT: tuple(names)},
        generations=(generation,),
    )

    def run() -> None:
        totals = Totals(manifest)
        seen = 0
        for split, name in enumerate(made.split_names):
            part = generation.splits[name]
            for number, shard in enumerate(part.shards):
                codes = _codes(made, split, number)
                expected = made.histogram(split, number)
                check_layouts(shard.name, codes, expected=expected, layouts=names)
                hashes = np.arange(seen, seen + len(codes), dtype=np.uint64)
                seen += len(codes)
                check = ShardCheck(codes={LAYOUT: codes}, id_hashes=hashes)
                check.faults += share_faults("", manifest, part, number, check)
                assert not check.faults
                task = ShardTask(generation=0, split=name, number=number, shard=shard, excluded=())
                totals.add(task, check)
        assert seen == case.rows
        assert not list(totals.faults(""))

    return _measured(run)


Stage = Callable[[Case], dict[str, float]]
STAGES: tuple[Stage, ...] = (plan, deal, unite, publish, summary, verify)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = benchmark_parser("build_scale", "", __doc__)
    parser.add_argument(
        "--rows",
        type=int,
        default=50_000_000,
        metavar="N",
        help="number of receipts (default: %(default)s)",
    )
    parser.add_argument(
        "--layouts",
        type=int,
        default=20_000,
        metavar="N",
        help="number of layouts (default: %(default)s)",
    )
    parser.add_argument(
        "--groups",
        type=int,
        default=0,
        metavar="N",
        help="number of shops or users that receipts are grouped by (default: none)",
    )
    names = [stage.__name__ for stage in STAGES]
    parser.add_argument(
        "--stages",
        nargs="+",
        choices=names,
        default=names,
        metavar="STAGE",
        help=f"stages to run, of {', '.join(names)} (default: all)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the figures to this file"
    )
    args = parser.parse(argv)
    try:
        case = Case(rows=args.rows, layouts=args.layouts, groups=args.groups)
    except ValueError as error:
        parser.error(str(error))
    shards = int(case.plan().shards.sum())
    print(
        f"{case.rows:,} rows, {case.layouts:,} layouts, {case.groups:,} groups, {shards:,} shards"
    )
    results = []
    for stage in STAGES:
        if stage.__name__ in args.stages:
            figures = in_new_process(stage, case)
            results.append({"stage": stage.__name__, **asdict(case), "shards": shards, **figures})
            listed = ", ".join(f"{name} {value:,.3g}" for name, value in figures.items())
            print(f"  {stage.__name__:<8} {listed}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    return 0


def _measured(run: Callable[[], object]) -> dict[str, float]:
    """Seconds of a processor, and megabytes of the whole process; also before, with its input."""
    before_mb = peak_mb()
    started = time.process_time()
    run()
    cpu_s = time.process_time() - started
    return {"CPU s": cpu_s, "peak MB": peak_mb(), "before MB": before_mb}


def _shards(made: Plan, split: int) -> Iterator[Shard]:
    name, count = made.split_names[split], int(made.shards[split])
    records = np.diff(_cuts(int(made.counts[:, split].sum()), count)).tolist()
    for number in range(count):
        yield Shard(
            name=shard_name(name, number),
            records=records[number],
            size_bytes=records[number] * _RECORD_BYTES,
            crc32c=0,
            index_crc32c=0,
            lookup_crc32c=0,
            summary_crc32c=0,
            dali_index_crc32c=0,
        )


def _codes(made: Plan, split: int, shard: int) -> npt.NDArray[np.int32]:
    """Layouts of a shard's records, found by dealing them one by one."""
    ends = np.cumsum(made.counts[:, split])
    numbers = np.arange(shard, int(ends[-1]), int(made.shards[split]))
    return np.searchsorted(ends, numbers, side="right").astype(np.int32)


def _record_summary(records: int) -> RecordSummary:
    return RecordSummary(
        features={
            feature.name: FeatureSummary(
                records=records,
                values=records,
                minimum=1.0,
                maximum=1_000.0,
                bins=Counter(bins_of(range(1, 1_001))),
            )
            for feature in receipt_features()
        }
    )


def _cuts(total: int, parts: int) -> IntArray:
    """Bounds of `parts` parts of `total` whose sizes differ by at most one, [parts + 1]."""
    return -(-total * np.arange(parts + 1) // parts)


if __name__ == "__main__":
    sys.exit(main())
