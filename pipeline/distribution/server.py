"""Workers and parameter servers of ParameterServerStrategy: they serve until the chief is done."""

import os
import sys
import time

import tensorflow as tf

from pipeline.distribution.cluster import Cluster
from pipeline.distribution.strategies import keep_host_memory

_LOOK_EVERY_S = 0.5


def serve(cluster: Cluster, folder: str) -> None:
    """Serves the chief until it says that the run is over; SIGTERM ends the process at once.

    A chief that stops or fails before says nothing: it is waited for, until it comes again.

    Args:
      cluster: which worker or parameter server this is.
      folder: the run's folder, on a file system that this process sees; where the word comes.
    """
    word = _word(folder, cluster.kind, cluster.index)
    if tf.io.gfile.exists(word):
        tf.io.gfile.remove(word)
    config = tf.compat.v1.ConfigProto()
    if cluster.kind == "ps":
        config.device_count["GPU"] = 0  # they are for the workers of the machine
    # A function of the chief's that waits for another server must not keep it from being served.
    config.inter_op_parallelism_threads = max(len(cluster), os.cpu_count() or 1)
    keep_host_memory()
    # Without it, this waits for a lost server instead of telling the chief.
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster.tasks),
        job_name=cluster.kind,
        task_index=cluster.index,
        protocol="grpc",
        config=config,
    )
    print(f"{cluster.kind} {cluster.index} serves at {server.target}", file=sys.stderr, flush=True)
    while not tf.io.gfile.exists(word):
        time.sleep(_LOOK_EVERY_S)
    tf.io.gfile.remove(word)


def dismiss(cluster: Cluster, folder: str) -> None:
    """Tells workers and parameter servers, from the chief, that the run is over.

    The word is a file that each writes for itself on the chief's behalf, so that they need no file
    system in common.
    """
    for kind in ("worker", "ps"):
        for index, address in enumerate(cluster.tasks[kind]):
            try:
                with tf.device(f"/job:{kind}/task:{index}/device:CPU:0"):
                    tf.io.write_file(_word(folder, kind, index), "the run is over\n")
            except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
                print(
                    f"{kind} {index} at {address} can't be told that the run is over; end it with "
                    f"SIGTERM where it still runs ({error.message})",
                    file=sys.stderr,
                )


def _word(folder: str, kind: str, index: int) -> str:
    return os.path.join(folder, f"{kind}-{index}.over")
