"""Figures of peers as a table, a chart and a piece of documentation."""

import shlex
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.harness.timing import Result, error_bars, text
from benchmarks.peers.readiness import Readiness
from benchmarks.peers.registry import PEERS


def fastest(results: Mapping[tuple[str, int], Result]) -> dict[str, tuple[int, Result]]:
    """Each peer's best number of workers, of (peer, workers), and its result; fastest first."""
    order = sorted(results, key=lambda each: -results[each].images_per_s)
    best: dict[str, tuple[int, Result]] = {}
    for name, workers in order:
        best.setdefault(name, (workers, results[name, workers]))
    return best


def comparison_rows(
    results: Mapping[str, tuple[int, Result]],
    readiness: Mapping[str, Readiness],
    *,
    against: str,
) -> list[dict[str, Any]]:
    """A row for each peer of `fastest`; `ratio` is to the speed of `against`."""
    _, reference = results[against]
    return [
        {
            "reader": PEERS[name].title,
            "workers": workers if PEERS[name].takes_workers else "its own",
            **result.columns(reference),
            "levels off": readiness[name].difference,
        }
        for name, (workers, result) in results.items()
    ]


def missing_lines(readiness: Mapping[str, Readiness]) -> list[str]:
    """A sentence for each peer that could not be measured."""
    return [
        f"not measured: {PEERS[name].title} ({name}): {each.missing}"
        + (f"; to have it: {each.install}" if each.install else "")
        for name, each in readiness.items()
        if each.missing
    ]


def versions(names: Sequence[str]) -> dict[str, str]:
    """Versions of what some peers consist of; none for distributions under another name."""
    packages = sorted({package for name in names for package in PEERS[name].packages})
    installed = {each.name.lower().replace("_", "-") for each in metadata.distributions()}
    return {each: metadata.version(each) for each in packages if each in installed}


def markdown(
    rows: Sequence[Mapping[str, Any]],
    missing: Sequence[str],
    *,
    about: str,
    command: Sequence[str],
    machine: Mapping[str, str],
    packages: Mapping[str, str],
) -> str:
    """A section for docs/benchmarks.md.

    Args:
      rows: of `comparison_rows`.
      missing: of `missing_lines`.
      about: what was measured, in a sentence.
      command: what measured it.
      machine: of `benchmarks.harness.timing`.
      packages: of `versions`.
    """
    lines = [
        about,
        "",
        "```",
        shlex.join(command),
        "```",
        "",
        "| " + " | ".join(rows[0]) + " |",
        "|---" + "|---:" * (len(rows[0]) - 1) + "|",
        *("| " + " | ".join(map(text, row.values())) + " |" for row in rows),
        "",
        *(f"- {line}" for line in missing),
        *([""] if missing else []),
        "Machine: " + ", ".join(machine.values()) + ".",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in packages.items()) + ".",
    ]
    return "\n".join(lines) + "\n"


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws a bar for each peer, from the slowest to the fastest round."""
    # Not above: the processes that are timed import this module, and their memory counts.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 0.6 + 0.4 * len(rows)), layout="constrained")
    axes = figure.subplots()
    names = [row["reader"] for row in rows]
    speeds = [row["images/s"] for row in rows]
    axes.barh(names, speeds, xerr=error_bars(rows), capsize=3)
    axes.invert_yaxis()
    axes.set(xlabel="images/s")
    figure.savefig(path, dpi=120)
