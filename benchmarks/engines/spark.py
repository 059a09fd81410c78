"""An Apache Spark standalone cluster on 127.0.0.1: a master and workers, each a process."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.engines.cluster import Cluster, answer
from benchmarks.engines.processes import running
from benchmarks.harness.addresses import free_port

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@contextmanager
def spark_cluster(
    distribution: Path, folder: Path, *, slots: int = 2, options: Sequence[str] = ()
) -> Iterator[Cluster]:
    """Starts a cluster of workers with a core each, and ends it.

    Args:
      distribution: folder with the jars of Spark, `jars`.
      folder: folder of the logs and of the workers' files.
      slots: number of workers.
      options: options of builds, besides the cluster's address.

    Raises:
      ClusterError: the cluster does not start.
    """
    port, web = free_port(), free_port()
    master = f"spark://127.0.0.1:{port}"
    java = ["java", "-Xmx512m", "-cp", f"{distribution}/jars/*"]
    here = ["--host", "127.0.0.1"]
    with running(folder, SPARK_HOME=str(distribution), SPARK_SCALA_VERSION="2.12") as processes:
        processes.start(
            "master", [*java, _MASTER, *here, "--port", str(port), "--webui-port", str(web)]
        )
        for number in range(slots):
            files = ["--work-dir", str(folder / f"worker-{number}")]
            size = ["--cores", "1", "--memory", "1536m", "--webui-port", str(free_port())]
            processes.start(f"worker-{number}", [*java, _WORKER, *here, *size, *files, master])
        state = f"http://127.0.0.1:{web}/json/"
        processes.await_start(lambda: answer(state).get("aliveworkers") == slots)
        yield Cluster(
            name=f"Spark {_version(distribution)}",
            options=(
                "--runner=SparkRunner",
                f"--spark_master_url={master}",
                "--job_server_jvm_property=-Dspark.driver.host=127.0.0.1",
                *options,
            ),
            processes=processes,
            machine="executor",
            machine_class=_EXECUTOR,
        )


def _version(distribution: Path) -> str:
    [core] = (distribution / "jars").glob("spark-core_*.jar")
    match = re.search(r"-([\d.]+)\.jar$", core.name)
    return match.group(1) if match else "?"
