"""Options that a Spark cluster asks for."""

import socket
from urllib.parse import urlsplit

from apache_beam.options.pipeline_options import (
    PipelineOptions,
    PortableOptions,
    SparkRunnerOptions,
)

from beam_jobs.running.engines import QUICK_JAVA, RunnerError, add_java_properties, check_cluster

_ANSWER_S = 10
_DEFAULT_PORT = 7077
# Spark reaches into these packages of Java, which version 17 opens only when asked.
_OPENED = (
    "java.io",
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)


def set_spark_options(options: PipelineOptions, workers: int | None) -> None:
    """Sets what Java needs in the driver of a job, and the cores that the job may use.

    Args:
      options: the job's options, which are changed.
      workers: how many cores the user asked for; None for all of the cluster.

    Raises:
      RunnerError: the address is missing, or the master does not answer.
    """
    portable = options.view_as(PortableOptions)
    if portable.job_endpoint:
        return  # that job server knows its cluster
    check_cluster("SparkRunner", options)
    _check_answer(options.view_as(SparkRunnerOptions).spark_master_url)
    properties = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    properties += [QUICK_JAVA, f"-Dspark.executor.extraJavaOptions={QUICK_JAVA}"]
    if workers is not None:
        properties.append(f"-Dspark.cores.max={workers}")
    add_java_properties(options, properties)
    if int(portable.sdk_worker_parallelism) == 1:
        portable.sdk_worker_parallelism = 0  # as many as an executor has cores, less one


def _check_answer(master: str) -> None:
    """Raises RunnerError unless somebody listens at an address that starts with spark://."""
    if not master.startswith("spark://"):
        return  # YARN's and Kubernetes' are found by Spark's own configuration
    try:
        address = urlsplit(master)
        host, port = address.hostname, address.port or _DEFAULT_PORT
        socket.create_connection((host, port), timeout=_ANSWER_S).close()
    except (OSError, ValueError) as error:
        raise RunnerError(
            f"no Spark master answers at {master} ({error}): --spark_master_url is the address "
            "that its web page shows, such as spark://master:7077"
        ) from error
