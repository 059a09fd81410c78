"""Distribution strategies by name."""

import os

import tensorflow as tf

from pipeline.distribution.cluster import Cluster
from pipeline.distribution.host_memory import keep_host_memory
from pipeline.distribution.peers import wait_for_peers
from pipeline.distribution.stop_request import keep_sigterm_handler

STRATEGIES = (
    "auto",
    "default",
    "one_device",
    "mirrored",
    "multi_worker",
    "parameter_server",
    "tpu",
)
MULTI_WORKER_TASKS = ("chief", "master", "worker")


def make_strategy(name: str = "auto") -> tf.distribute.Strategy:
    """Makes a strategy; the cluster comes from the environment variable TF_CONFIG.

    Call it before TensorFlow is used for anything else, as it sets up the cluster and calls
    `keep_host_memory`. Workers and parameter servers of "parameter_server" have no strategy: they
    call `pipeline.distribution.server.serve`.

    Args:
      name: one of `STRATEGIES`. "auto" chooses "parameter_server" if TF_CONFIG names parameter
        servers, "multi_worker" if it names several workers, "tpu" if the environment variable
        TPU_NAME is set, "mirrored" if there are several GPUs or logical devices, else "default".
        "tpu" is the TPU of TPU_NAME, or of this machine. "one_device" is the first GPU, or the CPU.

    Raises:
      ValueError: there is no such strategy, or it can't be made here.
    """
    if name not in STRATEGIES:
        raise ValueError(f"strategy {name!r} is unknown: choose one of {', '.join(STRATEGIES)}")
    keep_host_memory()
    if served := parameter_server_cluster(name):
        return _parameter_server(served)
    cluster = Cluster.from_environment()
    if name == "auto":
        name = _choose(cluster)
    if name == "multi_worker":
        return _multi_worker(cluster)
    if name == "tpu":
        return _tpu()
    if name == "mirrored":
        return tf.distribute.MirroredStrategy(_devices())
    if name == "one_device":
        return tf.distribute.OneDeviceStrategy(_devices()[0])
    return tf.distribute.get_strategy()


def make_logical_cpus(count: int) -> None:
    """Splits the CPU into logical devices; call it before anything runs on the CPU."""
    [cpu] = tf.config.list_physical_devices("CPU")
    logical = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
    tf.config.set_logical_device_configuration(cpu, logical)


def parameter_server_cluster(name: str) -> Cluster | None:
    """Returns the cluster of TF_CONFIG if a strategy's name stands for parameter servers.

    It uses no device, so that parameter servers can call it.

    Returns:
      The cluster, or None for other strategies.

    Raises:
      ValueError: the name stands for parameter servers, and TF_CONFIG names no such cluster.
    """
    cluster = Cluster.from_environment()
    if name == "auto" and cluster and "ps" in cluster.tasks:
        name = "parameter_server"
    if name != "parameter_server":
        return None
    if cluster is None:
        raise ValueError(
            "strategy 'parameter_server' needs a cluster, and TF_CONFIG names none: set it for "
            "each process of 1 chief, 1 or more workers and 1 or more ps, or choose another "
            "strategy"
        )
    cluster.check_parameter_servers()
    return cluster


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Tells whether this process writes the files that only one of the workers may write."""
    resolver = strategy.cluster_resolver
    if (
        resolver is None
        or not resolver.task_type
        or isinstance(strategy, tf.distribute.TPUStrategy)
    ):
        return True
    has_chief = "chief" in resolver.cluster_spec().as_dict()
    return resolver.task_type == "chief" or (not has_chief and resolver.task_id == 0)


def _parameter_server(cluster: Cluster) -> tf.distribute.Strategy:
    if cluster.kind != "chief":
        raise ValueError(
            f"this process is {cluster.kind} {cluster.index} in TF_CONFIG, and only the chief has "
            "a strategy: call pipeline.distribution.server.serve"
        )
    wait_for_peers(cluster.peers("worker", "ps"))
    # Without it, the chief would wait for a lost worker instead of getting an error.
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
    return tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver()
    )


def _multi_worker(cluster: Cluster | None) -> tf.distribute.Strategy:
    if cluster is None:
        raise ValueError(
            "strategy 'multi_worker' needs a cluster, and TF_CONFIG names none: set it for each "
            "process, or choose 'mirrored' for this machine alone"
        )
    if "ps" in cluster.tasks:
        raise ValueError(
            f"strategy 'multi_worker' can't use the cluster in TF_CONFIG, {cluster}: leave out "
            "'ps', or choose 'parameter_server'"
        )
    # TensorFlow holds Python's global lock while it waits for workers, so that no thread and no
    # signal handler runs. Once all of them answer, its own wait takes about a second.
    if peers := cluster.peers(*MULTI_WORKER_TASKS):
        wait_for_peers(peers, own_address=cluster.address)
    with keep_sigterm_handler():
        return tf.distribute.MultiWorkerMirroredStrategy()


def _tpu() -> tf.distribute.Strategy:
    name = os.environ.get("TPU_NAME") or "local"
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, OSError) as error:
        raise ValueError(
            f"no TPU can be reached as {name!r}: set the environment variable TPU_NAME to a TPU's "
            "name or grpc:// address, or to 'local' on a TPU VM with TensorFlow for TPUs, or "
            f"choose another strategy ({error})"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def _choose(cluster: Cluster | None) -> str:
    if cluster and len(cluster) > 1:
        return "multi_worker"
    if os.environ.get("TPU_NAME"):
        return "tpu"
    return "mirrored" if len(_devices()) > 1 else "default"


def _devices() -> list[str]:
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    return [f"{kind}:{number}" for number, _ in enumerate(tf.config.list_logical_devices(kind))]
