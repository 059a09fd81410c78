"""Commands that run as the tasks of a TensorFlow cluster on this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from benchmarks.harness.addresses import SHARED_PORTS, reserved_addresses

_ALIVE_S = 0.5


def run_cluster(command: Sequence[str], tasks: Mapping[str, int], *, name: str) -> str:
    """Runs a command once for each task, and waits for all of them.

    Args:
      command: arguments of Python.
      tasks: number of tasks of each kind of TF_CONFIG; none for a single process without it.
      name: of what runs, for the error.

    Returns:
      What the first task prints.

    Raises:
      SystemExit: one of them failed.
    """
    environment = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}
    processes: list[subprocess.Popen[str]] = []
    with reserved_addresses(sum(tasks.values())) as reserved:
        addresses = iter(reserved)
        cluster = {kind: [next(addresses) for _ in range(count)] for kind, count in tasks.items()}
        places = [(kind, index) for kind, each in cluster.items() for index in range(len(each))]
        try:
            for kind, index in places or [("", 0)]:
                task = {"cluster": cluster, "task": {"type": kind, "index": index}}
                config = {**SHARED_PORTS, "TF_CONFIG": json.dumps(task)} if tasks else {}
                processes.append(
                    subprocess.Popen(
                        [sys.executable, *command],
                        env={**environment, **config},
                        stdout=None if processes else subprocess.PIPE,
                        text=True,
                    )
                )
            return _output(processes, name)
        finally:
            for process in processes:
                process.kill()
                process.wait()


def _output(processes: Sequence[subprocess.Popen[str]], name: str) -> str:
    """Waits for all processes, and returns what the first one prints."""
    printed = None
    while printed is None:
        with suppress(subprocess.TimeoutExpired):
            printed, _ = processes[0].communicate(timeout=_ALIVE_S)
        for process in processes:
            _check(process.poll(), name)  # the others would wait for one that has failed
    for process in processes:
        _check(process.wait(), name)
    return printed


def _check(status: int | None, name: str) -> None:
    if status:
        sys.exit(f"a process of {name} ended with status {status}")
