"""Workers and parameter servers of ParameterServerStrategy, which serve until the chief is done."""

import os
import sys
import time

import tensorflow as tf

from pipeline.distribution.cluster import Cluster
from pipeline.distribution.host_memory import keep_host_memory

_POLL_INTERVAL_S = 0.5
# The last one says "unknown device", of a worker that was lost long ago.
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.InvalidArgumentError)


def serve(cluster: Cluster, folder: str) -> None:
    """Serves the chief until it calls `shut_down`; SIGTERM ends the process at once.

    If the chief stops or fails before, this process waits for it to come back.

    Args:
      cluster: the cluster, with the task of this process.
      folder: the run folder, where the chief leaves a marker file; on a file system that this
        process sees.
    """
    marker = _shutdown_marker(folder, cluster.kind, cluster.index)
    if tf.io.gfile.exists(marker):
        tf.io.gfile.remove(marker)
    config = tf.compat.v1.ConfigProto()
    if cluster.kind == "ps":
        config.device_count["GPU"] = 0  # they are for the workers of the machine
    # A function of the chief that waits for another server must not take the last thread.
    config.inter_op_parallelism_threads = max(len(cluster), os.cpu_count() or 1)
    keep_host_memory()
    # Without it, this process would wait for a lost server instead of telling the chief.
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster.tasks),
        job_name=cluster.kind,
        task_index=cluster.index,
        protocol="grpc",
        config=config,
    )
    print(f"{cluster.kind} {cluster.index} serves at {server.target}", file=sys.stderr, flush=True)
    while not tf.io.gfile.exists(marker):
        time.sleep(_POLL_INTERVAL_S)
    tf.io.gfile.remove(marker)


def shut_down(cluster: Cluster, folder: str) -> None:
    """Tells workers and parameter servers, from the chief, that the run is over.

    Each of them writes a marker file for itself, by an op that the chief places on it, so that they
    need no file system in common.
    """
    for kind in ("worker", "ps"):
        for index, address in enumerate(cluster.tasks[kind]):
            try:
                with tf.device(f"/job:{kind}/task:{index}/device:CPU:0"):
                    tf.io.write_file(_shutdown_marker(folder, kind, index), "the run is over\n")
            except _LOST as error:
                print(
                    f"{kind} {index} at {address} can't be told that the run is over "
                    f"({error.message}): if it still runs, end it with SIGTERM",
                    file=sys.stderr,
                )


def _shutdown_marker(folder: str, kind: str, index: int) -> str:
    return os.path.join(folder, f"{kind}-{index}.over")
