"""Options that a Spark cluster asks for."""

import socket
from urllib.parse import urlsplit

from apache_beam.options.pipeline_options import (
    PipelineOptions,
    PortableOptions,
    SparkRunnerOptions,
)
from apache_beam.runners.portability.spark_runner import SparkJarJobServer

from beam_jobs.running.engines import (
    QUICK_JAVA,
    RunnerError,
    add_java_properties,
    check_cluster,
    fetch_job_server,
)

_ANSWER_S = 10
_DEFAULT_PORT = 7077
_STANDALONE = "spark://"
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
      RunnerError: the address is missing, or is not that of a standalone master; no master
        answers; there is no job server for it.
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
    fetch_job_server(SparkJarJobServer(options), "--spark_job_server_jar", options)


def _check_answer(master: str) -> None:
    """Raises RunnerError unless a standalone master listens: one of several, as in spark://A,B."""
    if not master.startswith(_STANDALONE):
        raise RunnerError(
            f"--spark_master_url must be that of a standalone cluster, such as "
            f"spark://master:7077, got {master}: Beam's job server has Spark's classes for no "
            "other. Pass --job_endpoint=HOST:PORT of a job server that has them"
        )
    errors = []
    for one in master.removeprefix(_STANDALONE).split(","):
        try:
            address = urlsplit(f"{_STANDALONE}{one}")
            host, port = address.hostname, address.port or _DEFAULT_PORT
            socket.create_connection((host, port), timeout=_ANSWER_S).close()
        except (OSError, ValueError) as error:
            errors.append(error)
        else:
            return
    raise RunnerError(
        f"no Spark master answers at {master} ({errors[0]}): --spark_master_url is the address "
        "that its web page shows, such as spark://master:7077"
    ) from errors[0]
