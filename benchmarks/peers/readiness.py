"""Preparation of peers: writes their files, and checks that they show the receipts."""

import importlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import timing
from benchmarks.peers.reference import Reference
from benchmarks.peers.registry import PEERS


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """Result of preparing a peer.

    Attributes:
      difference: mean difference of its first batch from the reference, in levels of 0 to 255; None
        if it can't be measured.
      missing: reason why it can't be measured, or "".
      install: what to do about it, or "".
    """

    difference: float | None = None
    missing: str = ""
    install: str = ""


def made_ready(
    names: Sequence[str], work_dir: Path, reference: Reference, *, workers: int
) -> dict[str, Readiness]:
    """Prepares each peer in a new process, with its files in `work_dir / name`."""
    results = {}
    for name in names:
        peer = PEERS[name]
        if refusal := peer.refusal(reference.storage, reference.output):
            results[name] = Readiness(missing=refusal)
            continue
        ready = timing.in_new_process(_make_ready, name, work_dir / name, reference, workers)
        if isinstance(ready, str):
            results[name] = Readiness(missing=ready, install=peer.install)
        else:
            results[name] = Readiness(difference=ready)
    return results


def _make_ready(name: str, folder: Path, reference: Reference, workers: int) -> float | str:
    """Returns the difference of a peer, or the error of its import."""
    try:
        module = importlib.import_module(f"benchmarks.peers.{name}")
    except ImportError as error:
        return str(error)
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        module.prepare(reference.data_dir, unfinished)
        unfinished.rename(folder)
    images, _ = next(module.batches(folder, reference.output, workers=workers))
    return reference.difference(images)
