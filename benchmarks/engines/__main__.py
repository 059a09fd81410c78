"""Builds on clusters of Flink and Spark, beside the local runner.

Starts clusters of several processes on 127.0.0.1, builds the same receipts on each, also while a
TaskManager, an executor or a worker process is killed, and compares the bytes of the datasets.
Seconds are those of the whole command, Beam's job server included; memory is that of all processes,
the cluster's included.
"""

import shutil
import signal
import sys
import tempfile
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from beam_jobs.running.import_messages import hide_import_messages

if __name__ == "__main__":
    hide_import_messages()

from benchmarks.engines.builds import BuildFailedError, equal_files, run_build
from benchmarks.engines.cluster import SDK_WORKER, Cluster
from benchmarks.engines.fetch import FLINK, SPARK, distribution, job_server_options
from benchmarks.engines.flink import flink_cluster
from benchmarks.engines.processes import running
from benchmarks.engines.spark import spark_cluster
from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.timing import table, to_json
from schemas.command_line import CommandParser

LOCAL, PRISM = "local", "prism"
_CLUSTERS = {"flink": (FLINK, flink_cluster), "spark": (SPARK, spark_cluster)}
ENGINES = (*_CLUSTERS, PRISM)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns 1 if a build failed, or a dataset is not the local runner's."""
    parser = _parser()
    args = parser.parse(argv)
    clusters = [engine for engine in args.engines if engine in _CLUSTERS]
    if clusters and shutil.which("java") is None:
        parser.error(f"{' and '.join(clusters)} need Java, and there is no program java")
    # Clusters are ended when the program is, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="engines-") as name:
        folder = Path(name)
        for slots in args.slots:
            for engine in (LOCAL, *args.engines):
                with _cluster(engine, slots, args, folder / f"{engine}-{slots}") as cluster:
                    for victim in ("", *_victims(cluster, args)):
                        row = _built(args.table, cluster, slots, victim, folder)
                        rows.append(row)
                        print(" ".join(f"{key}: {value}" for key, value in row.items()), flush=True)
    _add_speed(rows)
    print(table(rows))
    if args.json:
        args.json.write_text(to_json({"rows": rows}))
    return 0 if all(row["bytes"] == "equal" for row in rows) else 1


def _victims(cluster: Cluster, args: Namespace) -> tuple[str, ...]:
    return (cluster.machine, SDK_WORKER) if args.kills and cluster.machine else ()


def _cluster(
    engine: str, slots: int, args: Namespace, folder: Path
) -> AbstractContextManager[Cluster]:
    """Returns the cluster of an engine; those of this machine's runners have no process yet."""
    if engine in _CLUSTERS:
        package, cluster = _CLUSTERS[engine]
        return cluster(
            distribution(package, args.downloads),
            folder,
            slots=slots,
            options=job_server_options(package, args.job_servers),
        )
    options: tuple[str, ...] = (f"--workers={slots}",)
    if engine == PRISM:
        where = (f"--prism_location={args.prism}",) if args.prism else ()
        options = ("--runner=PrismRunner", *where)
    return _runner(f"{engine} runner", options, folder)


@contextmanager
def _runner(name: str, options: tuple[str, ...], folder: Path) -> Iterator[Cluster]:
    with running(folder) as processes:
        yield Cluster(name=name, options=options, processes=processes)


def _built(
    receipts: Path, cluster: Cluster, slots: int, victim: str, folder: Path
) -> dict[str, Any]:
    """Builds on a cluster, and returns the row of the table."""
    local = folder / "local-dataset"
    output = local if cluster.name.startswith(LOCAL) else folder / "dataset"
    row = {"engine": cluster.name, "slots": slots, "killed": victim or "nothing"}
    try:
        build = run_build(receipts, output, cluster, victim=victim)
    except BuildFailedError as error:
        print(error, file=sys.stderr)
        return {**row, "runs": 0, "seconds": 0.0, "memory, GB": 0.0, "bytes": "failed"}
    return {
        **row,
        "runs": build.runs,
        "seconds": round(build.elapsed_s, 1),
        "memory, GB": round(build.peak_bytes / 1e9, 2),
        "bytes": "equal" if equal_files(output, local) else "DIFFERENT",
    }


def _add_speed(rows: Sequence[dict[str, Any]]) -> None:
    """Adds how fast each build was, beside the local runner's with as many slots."""
    local_s = {row["slots"]: row["seconds"] for row in rows if row["engine"].startswith(LOCAL)}
    for row in rows:
        row["speed"] = round(local_s[row["slots"]] / row["seconds"], 2) if row["seconds"] else 0.0


def _parser() -> CommandParser:
    parser = benchmark_parser("engines", "TABLE", __doc__)
    parser.add_argument("table", type=Path, metavar="TABLE", help="table of benchmarks.receipts")
    parser.add_argument(
        "--engines",
        type=_engines,
        default=tuple(_CLUSTERS),
        metavar="NAME[,NAME...]",
        help=f"some of {', '.join(ENGINES)} (default: {','.join(_CLUSTERS)})",
    )
    parser.add_argument(
        "--slots",
        type=_slots,
        default=(2,),
        metavar="N[,N...]",
        help="workers: processes of the local runner, TaskManagers, Spark workers (default: 2)",
    )
    parser.add_argument(
        "--kills", action="store_true", help="also kill a machine and a worker in the middle"
    )
    parser.add_argument(
        "--downloads",
        type=Path,
        default=Path("build/engines"),
        metavar="DIR",
        help="where Flink and Spark are kept once downloaded (default: %(default)s)",
    )
    parser.add_argument(
        "--job-servers",
        type=Path,
        metavar="DIR",
        help="where Beam's job servers lie (default: Beam fetches them)",
    )
    parser.add_argument(
        "--prism",
        type=Path,
        metavar="FILE",
        help="Beam's program prism, for that engine (default: Beam fetches it)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    return parser


def _engines(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in ENGINES:
            raise ArgumentTypeError(f"no engine {name!r}: choose some of {', '.join(ENGINES)}")
    return names


def _slots(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(number) for number in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise ArgumentTypeError(f"{text!r} is not a list of numbers from 1 on, such as 1,2")
    return numbers


if __name__ == "__main__":
    sys.exit(main())
