"""Tells how two versions of a dataset differ: `python -m beam_jobs.compare DIR --against 2`."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from beam_jobs.running.import_messages import hide_import_messages
from schemas.program import begin_program, run_program

if __name__ == "__main__":
    hide_import_messages()
    begin_program()

from apache_beam.io.filesystems import FileSystems

from beam_jobs.drift import CategoryDrift, Drift, Side, drift
from beam_jobs.errors import BuildError
from beam_jobs.running.runner import beam_options
from schemas.command_line import CommandParser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns 0."""
    parser = _parser()
    args, others = parser.parse_known_args(argv)
    if args.movers < 0:
        parser.error(f"--movers must be at least 0, got {args.movers}")
    try:
        FileSystems.set_options(beam_options(others))
        now = Side.read(args.directory, args.version, args.split)
        before = Side.read(*_against(args.against, now), args.split)
        found = drift(before, now)
        if args.json:
            text = json.dumps(_finite(asdict(found)), indent=1, ensure_ascii=False)
            Path(args.json).write_text(text + "\n")
    except (ValueError, OSError, BuildError) as error:
        parser.error(str(error))
    print("\n".join(_lines(before, now, found, args.movers)))
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        "beam_jobs.compare",
        "DIRECTORY",
        "Tells how a version of a dataset differs from another one, or from another dataset: new "
        "and vanished values of its categories, their shares, sizes of images, and labels. It "
        "reads the statistics alone, those of excluded records too.",
        epilog="Every other option is passed to Beam, such as those for S3.",
    )
    parser.add_argument("directory", metavar="DIRECTORY", help="dataset directory")
    parser.add_argument(
        "--version", type=int, metavar="N", help="version to describe (default: the newest)"
    )
    parser.add_argument(
        "--against",
        metavar="N_OR_DIRECTORY",
        help="version of the same dataset, or the directory of another one, whose newest version "
        "counts (default: the version before)",
    )
    parser.add_argument("--split", metavar="SPLIT", help="split to compare (default: all records)")
    parser.add_argument(
        "--movers",
        type=int,
        default=10,
        metavar="VALUES",
        help="values of a category to list, those whose share moved most (default: %(default)s)",
    )
    parser.add_argument("--json", metavar="FILE", help="also write all of it as JSON")
    return parser


def _against(given: str | None, now: Side) -> tuple[str, int | None]:
    """Returns the directory and version to compare with."""
    if given is None:
        if now.manifest.version == 1:
            raise ValueError(
                f"{now.directory} has no version before 1: name another dataset by --against"
            )
        return now.directory, now.manifest.version - 1
    if given.isdecimal():
        return now.directory, int(given)
    return given, None


def _lines(before: Side, now: Side, found: Drift, movers: int) -> Iterator[str]:
    yield f"{now.name}, against {before.name}"
    yield f"  records         {found.records_before:,} before, {found.records_now:,} now"
    for names, when in ((found.only_before, "before"), (found.only_now, "now")):
        if names:
            yield f"  only {when:<10} {', '.join(names)}"
    for name, category in found.categories.items():
        yield from _category_lines(name, category, movers)
    yield ""
    yield (
        f"{'numbers':<26} Jensen-Shannon {'mean before':>14} {'now':>11} {'median before':>15} "
        f"{'now':>11}"
    )
    for name, number in found.numbers.items():
        yield (
            f"  {name:<24} {_text(number.jensen_shannon, '.4f'):>14} "
            f"{_text(number.mean_before):>14} {_text(number.mean_now):>11} "
            f"{_text(number.median_before):>15} {_text(number.median_now):>11}"
        )


def _category_lines(name: str, category: CategoryDrift, movers: int) -> Iterator[str]:
    yield ""
    yield (
        f"{name}: L-infinity {category.l_infinity:.4f}, Jensen-Shannon "
        f"{_text(category.jensen_shannon, '.4f')}"
    )
    for values, word in ((category.new, "new"), (category.vanished, "vanished")):
        if values:
            more = len(values) - movers
            listed = ", ".join(values[:movers]) + (f" and {more:,} more" if more > 0 else "")
            yield f"  {word:<15} {len(values):,}: {listed}"
    for share in category.shares[:movers]:
        if share.before != share.now:
            yield f"  {share.value:<24} {share.before:>8.2%} before, {share.now:>8.2%} now"


def _text(number: float, form: str = ",.5g") -> str:
    return "none" if math.isnan(number) else format(number, form)


def _finite(value: Any) -> Any:
    """Replaces NaN, which JSON lacks, by null."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


if __name__ == "__main__":
    run_program(main)
