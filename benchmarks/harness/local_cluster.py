"""Commands that run as the tasks of a TensorFlow cluster on this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from benchmarks.harness.addresses import free_addresses


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
    addresses = iter(free_addresses(sum(tasks.values())))
    cluster = {kind: [next(addresses) for _ in range(count)] for kind, count in tasks.items()}
    places = [(kind, index) for kind, each in cluster.items() for index in range(len(each))]
    environment = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}
    processes: list[subprocess.Popen[str]] = []
    try:
        for kind, index in places or [("", 0)]:
            task = {"cluster": cluster, "task": {"type": kind, "index": index}}
            config = {"TF_CONFIG": json.dumps(task)} if tasks else {}
            processes.append(
                subprocess.Popen(
                    [sys.executable, *command],
                    env={**environment, **config},
                    stdout=None if processes else subprocess.PIPE,
                    text=True,
                )
            )
        printed, _ = processes[0].communicate()
        for process in processes:
            if status := process.wait():
                sys.exit(f"a process of {name} ended with status {status}")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return printed
