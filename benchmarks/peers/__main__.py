"""Images/s of tillroll beside other input pipelines, on the same receipts.

Each peer reads the train split of a dataset directory from its own recommended format, and makes
the same batches of it. Peers take turns, each in a process of its own. A
directory of raw pixels is a comparison of those that store pixels. Before that, the first batch of
each is held against the receipts: "levels off" is how far it is from them, of 255 levels. Peers
that are not installed are named. With several numbers of `--workers`, each peer is measured with
all of them, and its fastest counts.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.input_options import add_image_options, add_measuring_options
from benchmarks.harness.timing import Contender, Effort, Result, by_turns, machine, table, to_json
from benchmarks.peers import tillroll
from benchmarks.peers.comparison import (
    comparison_rows,
    draw,
    fastest,
    markdown,
    missing_lines,
    versions,
)
from benchmarks.peers.output import Output
from benchmarks.peers.readiness import Readiness, made_ready
from benchmarks.peers.reference import Reference
from benchmarks.peers.registry import PEERS
from benchmarks.peers.stored import read_manifest, storage
from schemas.command_line import CommandParser
from schemas.manifest import Manifest


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = _parser()
    args = parser.parse(argv)
    try:
        output = Output(
            batch_size=args.batch_size,
            height=args.size[0],
            width=args.size[1],
            channels=args.channels,
            fit=args.fit,
            dtype=args.dtype,
        )
        effort = Effort(batch_size=args.batch_size, batches=args.batches, warmup=args.warmup)
        if min(args.rounds, *args.workers) < 1:
            raise ValueError("--rounds and --workers must be at least 1")
        manifest = read_manifest(args.data_dir)
        _check_stored_size(manifest, output)
        reference = Reference.of(args.data_dir, output)
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="tillroll-peers-") as temporary:
        work_dir = (args.work_dir or Path(temporary)) / manifest.digest[:12]
        readiness = made_ready(args.peers, work_dir, reference, workers=args.workers[0])
        settings = _settings(readiness, args.workers)
        contenders = {
            label: Contender(
                function=f"benchmarks.peers.{name}:batches",
                options={"folder": work_dir / name, "output": output, "workers": workers},
            )
            for label, (name, workers) in settings.items()
        }
        if not contenders:
            print(*missing_lines(readiness), sep="\n")
            return 1
        rounds = by_turns(contenders, dict.fromkeys(contenders, effort), rounds=args.rounds)
    results = fastest({settings[label]: Result.of(each) for label, each in rounds.items()})
    command = ["python", "-m", "benchmarks.peers", *(sys.argv[1:] if argv is None else argv)]
    about = _about(args, reference, output)
    if "tillroll" in results:
        about += f" tillroll's {tillroll.reader(args.data_dir, output)}."
    _report(args, results, readiness, about=about, command=command)
    return 0


def _settings(
    readiness: Mapping[str, Readiness], workers: Sequence[int]
) -> dict[str, tuple[str, int]]:
    """The (peer, workers) to be timed, by a label; one for each number of workers that matters."""
    return {
        f"{name}, {count} workers" if PEERS[name].takes_workers else name: (name, count)
        for name, each in readiness.items()
        if not each.missing
        for count in (workers if PEERS[name].takes_workers else workers[:1])
    }


def _about(args: argparse.Namespace, reference: Reference, output: Output) -> str:
    """Says in a sentence or two what was measured."""
    about = (
        f"{len(reference.samples):,} receipts ({reference.storage}) to batches of "
        f"{' × '.join(map(str, output.shape))} {output.dtype}, fit by {output.fit!r}; "
        f"workers: the fastest of {', '.join(map(str, args.workers))}; medians of {args.rounds} "
        "rounds by turns."
    )
    if reference.storage == "jpeg":
        about += " tillroll decodes JPEG files at the scale that suffices, others at full size."
    return about


def _check_stored_size(manifest: Manifest, output: Output) -> None:
    """Pixels are read as they are: that is what they are stored for.

    Raises:
      ValueError: the output has another size.
    """
    options = manifest.build_options.get("image", {})
    shape = (*options.get("raw_size", ()), options.get("channels"))
    if storage(manifest) == "raw" and shape != output.shape[1:]:
        raise ValueError(
            f"pixels are stored as {list(shape)}, which all are to read as they are: "
            f"--size {shape[0]} {shape[1]} --channels {shape[2]}"
        )


def _parser() -> CommandParser:
    parser = benchmark_parser("peers", "DATA_DIR", __doc__)
    parser.add_argument("data_dir", metavar="DATA_DIR", help="local dataset directory")
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=PEERS,
        default=list(PEERS),
        metavar="NAME",
        help=f"peers to compare, of {', '.join(PEERS)} (default: all)",
    )
    parser.add_argument(
        "--against",
        choices=PEERS,
        default="tf_data_tfrecord",
        metavar="NAME",
        help="peer that ratios refer to, else the fastest (default: %(default)s)",
    )
    parser.add_argument(
        "--work-dir",
        type=Path,
        metavar="DIR",
        help="keep the peers' files in this folder, for the next time (default: they are deleted)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        nargs="+",
        default=[2],
        metavar="N",
        help="number of threads or processes of peers that don't choose it themselves (default: 2)",
    )
    add_image_options(parser)
    add_measuring_options(parser, rounds=5, batches=60)
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="also write table, versions and machine to this Markdown file",
    )
    return parser


def _report(
    args: argparse.Namespace,
    results: dict[str, tuple[int, Result]],
    readiness: dict[str, Readiness],
    *,
    about: str,
    command: Sequence[str],
) -> None:
    against = args.against if args.against in results else next(iter(results))
    rows = comparison_rows(results, readiness, against=against)
    packages, missing = versions(list(results)), missing_lines(readiness)
    about = f"{about} Ratios are to {PEERS[against].title}."
    print(table(rows), *missing, about, sep="\n")
    print(", ".join(machine().values()))
    print(", ".join(f"{name} {version}" for name, version in packages.items()))
    if args.json:
        options = {name: str(value) for name, value in vars(args).items()}
        args.json.write_text(
            to_json({"options": options, "versions": packages, "missing": missing, "results": rows})
        )
    if args.plot:
        draw(rows, args.plot)
    if args.markdown:
        args.markdown.write_text(
            markdown(
                rows, missing, about=about, command=command, machine=machine(), packages=packages
            )
        )


if __name__ == "__main__":
    sys.exit(main())
