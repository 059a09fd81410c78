"""An Apache Flink cluster on 127.0.0.1: a JobManager and TaskManagers, each a process."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engines.processes import OPENING, await_start, free_port, started

VERSION = "1.20"
_MASTER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_WORKER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
# Without a restart strategy, a lost TaskManager ends the job. Short heartbeats notice it soon.
_CONFIG = {
    "jobmanager.rpc.address": "127.0.0.1",
    "jobmanager.bind-host": "127.0.0.1",
    "taskmanager.host": "127.0.0.1",
    "taskmanager.bind-host": "127.0.0.1",
    "rest.address": "127.0.0.1",
    "rest.bind-address": "127.0.0.1",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "1 s",
    "heartbeat.interval": "2000",
    "heartbeat.timeout": "10000",
    "jobmanager.memory.process.size": "1g",
    "taskmanager.memory.task.heap.size": "512m",
    "taskmanager.memory.task.off-heap.size": "128m",
    "taskmanager.memory.network.min": "128m",
    "taskmanager.memory.network.max": "128m",
    "taskmanager.memory.managed.size": "256m",
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
    "taskmanager.cpu.cores": "1.0",
    "taskmanager.numberOfTaskSlots": "1",
}
_TASK_MANAGER = tuple(
    argument
    for name, value in _CONFIG.items()
    if name.startswith("taskmanager.memory")
    for argument in ("-D", f"{name}={value}")
)


@dataclass(frozen=True, kw_only=True)
class FlinkCluster:
    """A running cluster.

    Attributes:
      master: address of its JobManager.
      task_managers: its TaskManagers.
    """

    master: str
    task_managers: tuple[subprocess.Popen[bytes], ...]

    @property
    def options(self) -> tuple[str, ...]:
        """The options of a build that runs there."""
        return ("--runner=FlinkRunner", f"--flink_master={self.master}", "--parallelism=2")


@contextmanager
def flink_cluster(
    distribution: Path, folder: Path, *, task_managers: int = 2
) -> Iterator[FlinkCluster]:
    """Starts a cluster of TaskManagers with a slot each, and ends it.

    Args:
      distribution: folder with the jars of Flink, `lib`.
      folder: folder of the configuration and of the logs.
      task_managers: number of TaskManagers.

    Raises:
      ClusterError: the cluster does not start.
    """
    rest, rpc = free_port(), free_port()
    config = {
        **_CONFIG,
        "rest.port": str(rest),
        "jobmanager.rpc.port": str(rpc),
        "io.tmp.dirs": str(folder / "tmp"),
    }
    (folder / "conf").mkdir(parents=True)
    (folder / "conf" / "config.yaml").write_text(
        "".join(f"{name}: {value}\n" for name, value in config.items())
    )
    java = ["java", *OPENING, "-cp", f"{distribution}/lib/*"]
    end = ["--configDir", str(folder / "conf")]
    commands = {
        "job-manager": [*java, "-Xmx512m", _MASTER, *end, "--executionMode", "cluster"],
        **{
            f"task-manager-{number}": [*java, "-Xmx768m", _WORKER, *end, *_TASK_MANAGER]
            for number in range(task_managers)
        },
    }
    master = f"http://127.0.0.1:{rest}"
    with started(commands, folder) as running:
        await_start(running, lambda: _slots(master) == task_managers, folder)
        workers = [process for name, process in running.items() if name.startswith("task")]
        yield FlinkCluster(master=master, task_managers=tuple(workers))


def _slots(master: str) -> int:
    try:
        with urllib.request.urlopen(f"{master}/overview", timeout=5) as answer:
            return int(json.load(answer)["slots-total"])
    except OSError:  # it does not listen yet
        return 0
