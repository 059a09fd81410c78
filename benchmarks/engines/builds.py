"""Builds that are timed, with a process killed in their middle."""

import filecmp
import random
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.engines.cluster import Cluster
from benchmarks.engines.processes import Processes

SHARDS = 16  # few, and one of two slots may write most of them
_RUNS = 3
_LOOK_EVERY_S = 0.2
_MEASURE_EVERY_S = 2.0  # the kernel adds up the pages of each process, some 40 ms of a core


class BuildFailedError(RuntimeError):
    """A build failed again and again; the message has its last lines."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """Time and memory of a build.

    Attributes:
      elapsed_s: seconds of the command, of all runs together.
      peak_bytes: highest memory of its processes and of the cluster's together.
      runs: how often the command had to be run.
    """

    elapsed_s: float
    peak_bytes: int
    runs: int


def run_build(receipts: Path, output: Path, cluster: Cluster, *, victim: str = "") -> Build:
    """Runs the same command until it succeeds.

    Args:
      receipts: table of the inputs.
      output: the dataset directory, which is deleted before.
      cluster: where its job runs.
      victim: kind of the process that is killed once, as soon as some receipts are prepared; "" for
        none.

    Raises:
      BuildFailedError: it fails more often than one kill explains, or there is nothing to kill.
    """
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "beam_jobs.build", "--quiet", f"--input={receipts}"]
    command += [f"--output={output}", f"--shards={SHARDS}", *cluster.options]
    prepared = output / "_staging" / "prepared"
    started_s, measured_s = time.monotonic(), 0.0
    peak = 0
    for run in range(1, _RUNS + 1):
        cluster.processes.start("build", command)
        build = cluster.processes.started["build"]
        while build.poll() is None:
            if time.monotonic() - measured_s >= _MEASURE_EVERY_S:
                peak = max(peak, _memory(cluster.processes))
                measured_s = time.monotonic()
            if victim and any(prepared.glob("*.npz")) and _killed_one(cluster, victim):
                victim = ""
            time.sleep(_LOOK_EVERY_S)
        if victim:
            raise BuildFailedError(f"the build ended before there was a {victim} to kill")
        if build.returncode == 0:
            return Build(elapsed_s=time.monotonic() - started_s, peak_bytes=peak, runs=run)
    log = (cluster.processes.folder / "build.log").read_text(errors="replace")[-3000:]
    raise BuildFailedError(f"{_RUNS} runs of the build failed:\n{log}")


def equal_files(one: Path, other: Path) -> bool:
    """Returns whether two folders have files of the same names and bytes."""
    names = [sorted(path.relative_to(at) for path in at.rglob("*")) for at in (one, other)]
    return names[0] == names[1] and all(
        (one / name).is_dir() or filecmp.cmp(one / name, other / name, shallow=False)
        for name in names[0]
    )


def _killed_one(cluster: Cluster, kind: str) -> bool:
    victims = cluster.victims(kind)
    if victims:
        with suppress(psutil.NoSuchProcess):  # it has just ended
            victim = random.choice(victims)
            victim.kill()
            victim.wait(timeout=5)
            cluster.replace()
            return True
    return False


def _memory(processes: Processes) -> int:
    """Memory of all processes, in bytes; what several share is counted once."""
    total = 0
    for process in processes.all():
        with suppress(psutil.Error):  # it has just ended
            total += process.memory_full_info().pss
    return total
