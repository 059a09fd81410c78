"""Facts about ParameterServerStrategy, one of which TensorFlow has no public name for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from benchmarks.harness.addresses import SHARED_PORTS, reserved_addresses
from pipeline.distribution.parameter_server import is_parameter_server

# A cluster of one process: this is the chief, and serves for the others.
PROGRAM = """
import sys

import tensorflow as tf

from pipeline.distribution.parameter_server import is_parameter_server, worker_count

first, second, ps = sys.argv[1:]
cluster = tf.train.ClusterSpec({"worker": [first, second], "ps": [ps]})
servers = [
    tf.distribute.Server(cluster, job_name=kind, task_index=index, protocol="grpc")
    for kind, index in (("worker", 0), ("worker", 1), ("ps", 0))
]
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
strategy = tf.distribute.ParameterServerStrategy(resolver)
print(is_parameter_server(strategy), worker_count(strategy))
"""


@pytest.mark.slow
def test_the_number_of_workers():
    """If it fails, ParameterServerStrategy has lost `_cluster_resolver`: adapt `worker_count`."""
    with reserved_addresses(3) as addresses:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *addresses],
            cwd=Path(__file__).parents[3],
            env={**os.environ, **SHARED_PORTS},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.stdout.split() == ["True", "2"], done.stderr


def test_other_strategies():
    assert not is_parameter_server(tf.distribute.get_strategy())
