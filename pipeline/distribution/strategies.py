"""A distribution strategy by its name."""

import ctypes
import os
import warnings
from pathlib import Path

import tensorflow as tf

from pipeline.distribution.cluster import Cluster
from pipeline.distribution.stop_request import keep_sigterm_handler

STRATEGIES = (
    *("auto", "default", "one_device", "mirrored", "multi_worker"),
    *("parameter_server", "tpu"),
)
_USE_BFC = "TF_CPU_ALLOCATOR_USE_BFC"
# Memory limits of a container, in bytes or "max", of the second and the first version of cgroups.
_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
# Limits of the C library by their numbers in malloc.h, and the highest that it chooses itself.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_BLOCK, _MOST_UNUSED = 32 << 20, 64 << 20
_LIMITS_SET = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def make_strategy(name: str = "auto") -> tf.distribute.Strategy:
    """Makes a strategy; the cluster comes from the environment variable TF_CONFIG.

    Must come before TensorFlow is used for anything else, as it sets up the cluster and calls
    `keep_host_memory`. Workers and parameter servers of "parameter_server" have no strategy: they
    `serve`.

    Args:
      name: "auto" takes "parameter_server" where TF_CONFIG names parameter servers, "multi_worker"
        where it names several workers, "tpu" where the environment variable TPU_NAME is set,
        "mirrored" where there are several GPUs or logical devices, else "default". "tpu" is the TPU
        of TPU_NAME, or this machine's. "one_device" is the first GPU, or the CPU.

    Raises:
      ValueError: there is no such strategy, or it can't be had here.
    """
    if name not in STRATEGIES:
        raise ValueError(f"strategy {name!r} is unknown: choose one of {', '.join(STRATEGIES)}")
    keep_host_memory()
    if served := parameter_server_cluster(name):
        return _parameter_server(served)
    cluster = Cluster.from_environment()
    if name == "auto":
        name = _fitting(cluster)
    if name == "multi_worker":
        return _multi_worker(cluster)
    if name == "tpu":
        return _tpu()
    if name == "mirrored":
        return tf.distribute.MirroredStrategy(_devices())
    if name == "one_device":
        return tf.distribute.OneDeviceStrategy(_devices()[0])
    return tf.distribute.get_strategy()


def keep_host_memory() -> None:
    """Keeps the memory of a batch for the next one; must come before TensorFlow runs anything.

    The C library returns blocks above 32 MB to the kernel as soon as they are free, and the kernel
    clears them again page by page. Depending on the processor, that takes up to a fifth of the time
    of decoding and half of the time of reading pixels, see docs/benchmarks.md. TensorFlow's
    best-fit allocator keeps such blocks, and so does oneDNN's, which TensorFlow uses by itself on
    processors with AVX512_VNNI. Records are strings, which stay with the C library: its limits are
    raised to the highest that it chooses by itself.

    The price is memory: a process holds the largest batches it has made until it ends. The
    allocator is chosen by environment variables, which processes started later inherit. Variables
    that are set already stay, and so does an allocator in LD_PRELOAD. The allocator stops at the
    memory of the machine, or of its container, with TensorFlow's ResourceExhaustedError.

    Warns:
      RuntimeWarning: TensorFlow has run something, and has chosen its allocator for good.
    """
    preloaded = "malloc" in os.environ.get("LD_PRELOAD", "")
    if preloaded or os.environ.get(_USE_BFC, "").lower() in ("false", "0"):
        return
    if _USE_BFC not in os.environ and _tensorflow_has_run():
        warnings.warn(
            "TensorFlow has run something and has chosen its allocator for good, so large batches "
            "may come slower: call make_strategy() or keep_host_memory() before anything else of "
            f"TensorFlow, or set {_USE_BFC}=true",
            RuntimeWarning,
            stacklevel=2,
        )
    else:
        os.environ.setdefault(_USE_BFC, "true")
        os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", str(_memory_bytes() >> 20))  # or 64 GB
    if not any(name in os.environ for name in _LIMITS_SET):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGEST_BLOCK)
        library.mallopt(_M_TRIM_THRESHOLD, _MOST_UNUSED)


def _tensorflow_has_run() -> bool:
    """Returns whether TensorFlow has set up its devices, and with them the allocator."""
    threads = tf.config.threading.get_inter_op_parallelism_threads()
    try:  # the one public call that tells: it refuses a new number once devices are set up
        tf.config.threading.set_inter_op_parallelism_threads(threads + 1)
    except RuntimeError:
        return True
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    return False


def _memory_bytes() -> int:
    """Memory of the machine, or the limit of the container that this process runs in."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in _CONTAINER_LIMITS:
        if path.exists() and (text := path.read_text().strip()).isdecimal():  # else "max"
            limits.append(int(text))
    return min(limits)


def make_logical_cpus(count: int) -> None:
    """Splits the CPU into logical devices; must come before anything runs on it."""
    [cpu] = tf.config.list_physical_devices("CPU")
    logical = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
    tf.config.set_logical_device_configuration(cpu, logical)


def parameter_server_cluster(name: str) -> Cluster | None:
    """The cluster, where a strategy's name means that of parameter servers; uses no device.

    Raises:
      ValueError: it means that, and TF_CONFIG names no such cluster.
    """
    cluster = Cluster.from_environment()
    if name == "auto" and cluster and "ps" in cluster.tasks:
        name = "parameter_server"
    if name != "parameter_server":
        return None
    if cluster is None:
        raise ValueError(
            "strategy 'parameter_server' needs a cluster, and TF_CONFIG names none: set it for "
            "each process of 1 chief, 1 or more worker and 1 or more ps, or choose another strategy"
        )
    cluster.check_parameter_servers()
    return cluster


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes what only one of all workers may write."""
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
    # Without it, the chief waits for a lost worker instead of hearing of it.
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


def _fitting(cluster: Cluster | None) -> str:
    if cluster and len(cluster) > 1:
        return "multi_worker"
    if os.environ.get("TPU_NAME"):
        return "tpu"
    return "mirrored" if len(_devices()) > 1 else "default"


def _devices() -> list[str]:
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    return [f"{kind}:{number}" for number, _ in enumerate(tf.config.list_logical_devices(kind))]
