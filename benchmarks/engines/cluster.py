"""A cluster, as a build and whoever kills processes of it see it."""

import json
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psutil

from benchmarks.engines.processes import Processes

SDK_WORKER = "SDK worker"
_FORK_SERVER = "beam_jobs.running.fork_server"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A running cluster, or a runner of this machine.

    Attributes:
      name: engine and version.
      options: the options of a build that runs there.
      processes: its processes, and the build's.
      machine: what is lost with a machine of the cluster, such as "TaskManager"; "" if there is
        none.
      machine_class: a text of that process's command line.
      replace: starts what was killed again, as a cluster's supervisor does.
    """

    name: str
    options: tuple[str, ...]
    processes: Processes
    machine: str = ""
    machine_class: str = ""
    replace: Callable[[], None] = field(default=lambda: None)

    def victims(self, kind: str) -> list[psutil.Process]:
        """Returns the processes of a kind: SDK_WORKER, or `machine`."""
        if kind == self.machine:
            return self.processes.matching(self.machine_class)
        servers = self.processes.matching(_FORK_SERVER)
        numbers = {process.pid for process in servers}
        return [process for process in servers if process.ppid() in numbers]


def answer(address: str) -> Mapping[str, Any]:
    """Returns the JSON object of a URL; an empty one if nobody listens there yet."""
    try:
        with urllib.request.urlopen(address, timeout=5) as response:
            found: Mapping[str, Any] = json.load(response)
    except OSError:
        return {}
    return found
