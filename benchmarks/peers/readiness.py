"""Getting peers ready: their files, and whether they can be imported and show the receipts."""

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
    """What a peer is ready for.

    Attributes:
      difference: of its first batch from the reference, mean, in levels of 0…255; None where it
        is missing.
      missing: why it can't be measured, or nothing.
      install: what to do about it, or nothing.
    """

    difference: float | None = None
    missing: str = ""
    install: str = ""


def made_ready(
    names: Sequence[str], work_dir: Path, reference: Reference, *, workers: int
) -> dict[str, Readiness]:
    """Makes each peer ready in a process of its own, with its files in `work_dir / name`."""
    found = {}
    for name in names:
        peer = PEERS[name]
        if refusal := peer.refusal(reference.storage, reference.output):
            found[name] = Readiness(missing=refusal)
            continue
        ready = timing.in_new_process(_make_ready, name, work_dir / name, reference, workers)
        if isinstance(ready, str):
            found[name] = Readiness(missing=ready, install=peer.install)
        else:
            found[name] = Readiness(difference=ready)
    return found


def _make_ready(name: str, folder: Path, reference: Reference, workers: int) -> float | str:
    """Its difference, or why it can't be imported."""
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
