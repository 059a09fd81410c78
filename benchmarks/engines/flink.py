"""An Apache Flink cluster on 127.0.0.1: a JobManager and TaskManagers, each a process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from beam_jobs.running.engines import QUICK_JAVA
from benchmarks.engines.cluster import Cluster, answer
from benchmarks.engines.processes import Processes, running
from benchmarks.harness.addresses import free_port

_MASTER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_WORKER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
_MANAGER = "task-manager-"
# Without a restart strategy, a lost TaskManager ends the job; short heartbeats notice it soon.
# A TaskManager that Flink's own script does not start needs all pieces of its memory.
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
_MEMORY = [
    argument
    for name, value in _CONFIG.items()
    if name.startswith("taskmanager.memory")
    for argument in ("-D", f"{name}={value}")
]
# Packages that Flink reaches into, which Java opens from version 17 on only when asked.
_OPENED = (
    *("java.io", "java.lang", "java.lang.reflect", "java.net", "java.nio", "java.text"),
    *("java.time", "java.util", "java.util.concurrent", "java.util.concurrent.atomic"),
    *("java.util.concurrent.locks", "sun.nio.ch"),
)


@contextmanager
def flink_cluster(
    distribution: Path, folder: Path, *, slots: int = 2, options: Sequence[str] = ()
) -> Iterator[Cluster]:
    """Starts a cluster of TaskManagers with a slot each, and ends it.

    Args:
      distribution: folder with the jars of Flink, `lib`.
      folder: folder of the configuration and of the logs.
      slots: number of TaskManagers.
      options: options of builds, besides the cluster's address.

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
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    java = ["java", QUICK_JAVA, *opened, "-cp", f"{distribution}/lib/*"]
    end = ["--configDir", str(folder / "conf")]
    manager = [*java, "-Xmx768m", _WORKER, *end, *_MEMORY]
    with running(folder) as processes:
        processes.start(
            "job-manager", [*java, "-Xmx512m", _MASTER, *end, "--executionMode", "cluster"]
        )
        for number in range(slots):
            processes.start(f"{_MANAGER}{number}", manager)
        master = f"http://127.0.0.1:{rest}"
        processes.await_start(lambda: answer(f"{master}/overview").get("slots-total") == slots)
        yield Cluster(
            name=f"Flink {answer(f'{master}/overview')['flink-version']}",
            options=("--runner=FlinkRunner", f"--flink_master={master}", *options),
            processes=processes,
            machine="TaskManager",
            machine_class=_WORKER,
            replace=lambda: _replace(processes, manager),
        )


def _replace(processes: Processes, command: Sequence[str]) -> None:
    """Starts the TaskManagers again that have ended."""
    for name, process in list(processes.started.items()):
        if name.startswith(_MANAGER) and process.poll() is not None:
            processes.start(name, command)
