"""The cost of an append beside that of the full build, and of looking up what is there already.

`python -m benchmarks.append_cost` builds a dataset of small images and appends 1 % to it. Both are
whole commands; a build and an append of one receipt show their start-up, which is taken off. Then
it looks for new records in the lookups of a million old ones, with the classes of the build.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from beam_jobs.running.import_messages import hide_import_messages

if __name__ in ("__main__", "__mp_main__"):  # the program, and the processes that it measures in
    hide_import_messages()

from beam_jobs.prepare.known import OldShards, find_ids, find_pixels_and_groups, write_hashes
from beam_jobs.prepare.staging import Staging
from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.timing import in_new_process
from benchmarks.plan_scale import peak_mb
from schemas.command_line import CommandParser
from schemas.file_names import shard_name
from schemas.lookup import RecordLookup
from schemas.manifest import Shard

_SIDE = 24  # pixels of an image: what is measured grows with the records, not with their pixels
_LAYOUTS = 50
_SHARD_RECORDS = 10_000
_CHECKSUMS = [field.name for field in fields(Shard) if field.name.endswith("crc32c")]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    args = _parser().parse(argv)
    if not 0 < args.appended <= 1:
        raise SystemExit(f"--appended must be above 0, and at most 1, got {args.appended}")
    with tempfile.TemporaryDirectory(prefix="append-cost-") as folder:
        costs = append_costs(Path(folder), args.rows, args.appended, args.workers)
        print(
            f"{args.rows:,} receipts, {args.appended:.3%} appended, {args.workers} processes; "
            "seconds"
        )
        for name, seconds in costs.items():
            print(f"  {name:<26} {seconds:8.2f}")
        print(f"  append / build             {ratio(costs):8.2%}   start-up aside")
        looked = in_new_process(look_up, f"{folder}/old", args.records, args.new)
    print(f"{args.records:,} old records, {args.new:,} new ones to look for, in one process")
    for name, figure in looked.items():
        print(f"  {name:<26} {figure:8.2f}")
    return 0


def _parser() -> CommandParser:
    parser = benchmark_parser("append_cost", "", __doc__)
    parser.add_argument(
        "--rows",
        type=int,
        default=20_000,
        metavar="N",
        help="number of receipts that are built (default: %(default)s)",
    )
    parser.add_argument(
        "--appended",
        type=float,
        default=0.01,
        metavar="FRACTION",
        help="number of receipts that are appended, as a fraction of --rows (default: %(default)s)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=2,
        metavar="N",
        help="number of processes of a build (default: %(default)s)",
    )
    parser.add_argument(
        "--records",
        type=int,
        default=1_000_000,
        metavar="N",
        help="number of old records in the lookups (default: %(default)s)",
    )
    parser.add_argument(
        "--new",
        type=int,
        default=10_000,
        metavar="N",
        help="number of records that are looked for (default: %(default)s)",
    )
    return parser


def append_costs(folder: Path, rows: int, appended: float, workers: int) -> dict[str, float]:
    """Seconds of a build, of an append to it, and of the same with one receipt each."""
    more = max(round(rows * appended), 1)
    tables = {
        "build": _draw(folder / "first", range(rows)),
        "append": _draw(folder / "more", range(rows, rows + more)),
        "build of one receipt": _draw(folder / "one", range(1)),
        "append of one receipt": _draw(folder / "two", range(1, 2)),
    }
    outputs = ("out", "out", "small", "small")
    return {
        name: _timed(table, folder / output, workers, append=name.startswith("append"))
        for (name, table), output in zip(tables.items(), outputs, strict=True)
    }


def ratio(costs: dict[str, float]) -> float:
    """Time of the append as a share of the build's, start-up aside."""
    appended = costs["append"] - costs["append of one receipt"]
    return appended / (costs["build"] - costs["build of one receipt"])


def _draw(folder: Path, numbers: range) -> Path:
    """Writes images that all differ, and their table."""
    (folder / "images").mkdir(parents=True)
    lines = []
    for number in numbers:
        pixels = np.random.default_rng(number).integers(0, 255, (_SIDE, _SIDE), np.uint8)
        name = f"images/{number}.png"
        Image.fromarray(pixels).save(folder / name, compress_level=1)
        row = {"id": str(number), "image": name, "layout": f"layout-{number % _LAYOUTS}"}
        lines.append(json.dumps(row) + "\n")
    table = folder / "receipts.jsonl"
    table.write_text("".join(lines))
    return table


def _timed(table: Path, output: Path, workers: int, *, append: bool) -> float:
    command = [sys.executable, "-m", "beam_jobs.build", "--input", table, "--output", output]
    options = ["--append"] if append else ["--min-side=1", "--shards=2"]
    started = time.perf_counter()
    subprocess.run(
        [*map(str, command), *options, "--quiet", f"--workers={workers}"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - started


def look_up(folder: str, records: int, new: int) -> dict[str, float]:
    """Looks for new ids, pixels and groups in lookups of random hashes.

    Args:
      folder: where the lookups are written.
      records: number of old records.
      new: number of new ones; 1 in 10 has an id that is there already.

    Returns:
      Megabytes of the lookups, processor seconds, and megabytes that the process grew by.
    """
    rng = np.random.default_rng(0)
    shards, taken = [], []
    for number in range(-(-records // _SHARD_RECORDS)):
        size = min(_SHARD_RECORDS, records - number * _SHARD_RECORDS)
        words = rng.integers(0, 2**64, (size, 6), np.uint64)
        lookup = RecordLookup(
            key=words[:, :2], pixels=words[:, 2:4], labels=words[:, 4], group=words[:, 5]
        )
        taken.append(lookup.key[: new // 10, 0])
        sums: dict[str, Any] = dict.fromkeys(_CHECKSUMS, 0)
        shard = Shard(name=shard_name("train", number), records=size, size_bytes=0, **sums)
        path = Path(folder, shard.lookup_name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(lookup.to_bytes())
        shards.append(shard)
    disk_mb = sum(path.stat().st_size for path in Path(folder).glob("*.npz")) / 1e6
    known = np.concatenate(taken)[: new // 10]
    fresh = rng.integers(0, 2**64, (new - len(known), 3), np.uint64)
    staging = Staging(folder)
    ids = write_hashes(staging, np.concatenate([known, fresh[:, 0]]))
    others = (write_hashes(staging, fresh[:, 1]), write_hashes(staging, fresh[:, 2]))
    old = OldShards(directory=folder, split=0, shards=tuple(shards))
    before_mb, started = peak_mb(), time.process_time()
    found = sum(len(RecordLookup.from_bytes(data)) for _, data in find_ids(old, [ids], new))
    assert found == len(known)
    assert not list(find_pixels_and_groups(old, [others]))
    return {
        "lookups, MB": disk_mb,
        "processor, s": time.process_time() - started,
        "memory, MB": peak_mb() - before_mb,
    }


if __name__ == "__main__":
    sys.exit(main())
