"""Time and memory of planning an epoch of millions of records, on one core.

A dataset directory is written that holds everything but the records: manifest and indexes. Then,
in a process of its own, what a training run does before its first batch is timed: reading
the index, sorting it into a table, the epoch's tables, and the rows of some batches, from the first
step on and from a far one. No step needs more than that: there is no array of an epoch's length.
"""

import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import numpy as np
import numpy.typing as npt

from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.long_tail import long_tail
from schemas.file_names import COMPLETED, manifest_name, shard_name
from schemas.index import RecordIndex
from schemas.manifest import Counts, Generation, Manifest, Shard, Split
from schemas.receipt import receipt_features
from schemas.versions import FIRST_VERSION, Versions

IntArray = npt.NDArray[np.int64]

_BATCH, _BATCHES, _FAR_STEP = 256, 32, 1_000_000
_RECORD_BYTES, _SHARD_RECORDS = 100_000, 250_000


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = benchmark_parser("plan_scale", "", __doc__)
    parser.add_argument(
        "--records",
        type=int,
        nargs="+",
        default=[1_000_000, 10_000_000, 50_000_000],
        metavar="N",
        help="numbers of records, one after the other (default: 1, 10 and 50 million)",
    )
    parser.add_argument(
        "--layouts",
        type=int,
        default=20_000,
        metavar="N",
        help="number of layouts (default: %(default)s)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the figures to this file"
    )
    args = parser.parse(argv)
    results = []
    for records in args.records:
        with tempfile.TemporaryDirectory(prefix="plan-scale-") as folder:
            write_directory(Path(folder), records=records, layouts=args.layouts)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                figures = pool.apply(measure, [folder])
        results.append({"records": records, "layouts": args.layouts, **figures})
        print(
            f"{records:>12,} records: "
            + ", ".join(f"{name} {value:,.3g}" for name, value in figures.items())
        )
    print(f"{args.layouts:,} layouts, batches of {_BATCH}, {platform.processor() or 'one core'}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    return 0


def measure(folder: str) -> dict[str, float]:
    """Seconds of each stage and megabytes of the whole process, on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from pipeline.input.input_pipeline import InputPipeline
    from pipeline.records.info import load_info
    from pipeline.records.table import make_plan

    before_mb = peak_mb()
    times = [time.perf_counter()]
    loaded = InputPipeline.load(load_info(folder), "train", _BATCH, config=None)
    times.append(time.perf_counter())
    made = make_plan(loaded.info, "train", loaded.config, loaded.table, batch_size=_BATCH, seed=0)
    plan = made.phase(0).plan
    step, row = np.indices((min(_BATCHES, plan.steps_per_epoch), _BATCH)).reshape(2, -1)
    for far in (0, _FAR_STEP):
        number, within = divmod(far, plan.steps_per_epoch)
        epoch = plan.epoch(np.int64(number))
        plan.rows(epoch, (step + within) % plan.steps_per_epoch, row)
        times.append(time.perf_counter())
    table_s, first_s, far_s = np.diff(times).tolist()
    return {
        "table s": table_s,
        f"{_BATCHES} batches s": first_s,
        f"{_BATCHES} batches from step {_FAR_STEP:,} s": far_s,
        "peak MB": peak_mb(),
        "of that TensorFlow MB": before_mb,
    }


def peak_mb() -> float:
    """The highest resident memory of this process; of `getrusage` it may be the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["VmHWM"].removesuffix("kB")) * 1024 / 1e6


def write_directory(folder: Path, *, records: int, layouts: int) -> None:
    """Manifest and indexes of a split whose layouts follow a long tail."""
    rng = np.random.default_rng(0)
    shards = -(-records // _SHARD_RECORDS)
    written = []
    counts = np.zeros(layouts, np.int64)
    for number, part in enumerate(np.array_split(np.arange(records), shards)):
        chosen = long_tail(rng, len(part), layouts=layouts)
        counts += np.bincount(chosen, minlength=layouts)
        shard = Shard(
            name=shard_name("train", number),
            records=len(part),
            size_bytes=len(part) * _RECORD_BYTES,
            crc32c=0,
            index_crc32c=0,
            lookup_crc32c=0,
            summary_crc32c=0,
            dali_index_crc32c=0,
        )
        (folder / shard.index_name).write_bytes(_index(part, chosen).to_bytes())
        written.append(shard)
    generation = Generation(
        version=FIRST_VERSION,
        splits={
            "train": Split(
                shards=tuple(written), category_counts={"layout": tuple(counts.tolist())}
            )
        },
        counts=Counts(inputs=records, written=records, duplicates=0, quarantined={}),
        source_fingerprint="",
        written_by="benchmarks",
    )
    manifest = Manifest(
        version=FIRST_VERSION,
        features=receipt_features(),
        labels=(),
        vocabularies={"layout": tuple(f"layout-{number:05d}" for number in range(layouts))},
        generations=(generation,),
    )
    text = manifest.to_json().encode()
    path = folder / manifest_name(FIRST_VERSION)
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    (folder / COMPLETED).write_bytes(Versions.first(text).to_bytes())


def _index(records: IntArray, layouts: IntArray) -> RecordIndex:
    """Makes the index of a shard; ids are the numbers of the records in 9 digits."""
    count = len(records)
    digits = records[:, None] // 10 ** np.arange(8, -1, -1) % 10 + ord("0")
    return RecordIndex(
        offset=np.arange(count, dtype=np.int64) * _RECORD_BYTES,
        length=np.full(count, _RECORD_BYTES, np.int32),
        height=np.full(count, 1024, np.int32),
        width=np.full(count, 512, np.int32),
        channels=np.full(count, 3, np.uint8),
        categories={"layout": layouts.astype(np.int32)},
        id_end=np.arange(1, count + 1, dtype=np.int64) * 9,
        id_text=digits.astype(np.uint8).ravel(),
    )


if __name__ == "__main__":
    sys.exit(main())
