"""Options that jobs on Flink and Spark share: a job server, and where Python runs."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    SparkRunnerOptions,
)

WORKER = "tillroll-sdk-worker"
# Java's first compiler alone. All that Java does for a job is to hand bytes to Python, and most of
# a small job's time would go into compiling that a second time, as fast as it gets.
QUICK_JAVA = "-XX:TieredStopAtLevel=1"


class RunnerError(ValueError):
    """The runner's options can't work; the message says what to change."""


def is_flink(name: str) -> bool:
    """Returns whether a name, in any case, means Flink."""
    return name.lower() in ("flink", "flinkrunner")


def is_spark(name: str) -> bool:
    """Returns whether a name, in any case, means Spark."""
    return name.lower() in ("spark", "sparkrunner")


def set_worker_process(options: PipelineOptions) -> None:
    """Makes Python run in processes of `tillroll-sdk-worker`, unless the user has chosen.

    Raises:
      RunnerError: that program is not installed.
    """
    portable = options.view_as(PortableOptions)
    if portable.environment_type is None:
        portable.environment_type = "PROCESS"
    needs_command = portable.environment_type == "PROCESS" and not (
        portable.environment_config or portable.lookup_environment_option("process_command")
    )
    if needs_command:
        portable.add_environment_option(f"process_command={_worker_command()}")


def add_java_properties(options: PipelineOptions, properties: Sequence[str]) -> None:
    """Adds properties of the job server's Java; those of the user come last, and so win."""
    server = options.view_as(JobServerOptions)
    server.job_server_jvm_properties = [*properties, *server.job_server_jvm_properties]


def check_cluster(name: str, options: PipelineOptions) -> None:
    """Checks that options name a cluster, and that a job server for it can be started.

    Raises:
      RunnerError: something is missing.
    """
    flink, spark = options.view_as(FlinkRunnerOptions), options.view_as(SparkRunnerOptions)
    if is_flink(name):
        address, flag, example = flink.flink_master, "--flink_master", "http://jobmanager:8081"
        jar, jar_flag = flink.flink_job_server_jar, "--flink_job_server_jar"
    else:
        address, flag, example = spark.spark_master_url, "--spark_master_url", "spark://master:7077"
        jar, jar_flag = spark.spark_job_server_jar, "--spark_job_server_jar"
    if address.startswith(("[", "local")):
        raise RunnerError(
            f"{name} needs the address of its cluster: for example {flag}={example}. On this "
            "machine alone, leave --runner out: that is faster"
        )
    if jar and not urlsplit(jar).scheme and not Path(jar).is_file():
        raise RunnerError(f"{jar_flag}={jar} is not a file: leave it out, and Beam fetches its own")
    java = options.view_as(JobServerOptions).job_server_java_launcher
    if shutil.which(java) is None:
        raise RunnerError(
            f"{name} needs Java, from version 11 on, for the job server of Beam, and the program "
            f"{java} was not found: install it, or name it with --job_server_java_launcher, or "
            "pass --job_endpoint=HOST:PORT of a job server"
        )


def _worker_command() -> str:
    """Path of the program that a cluster's machines start, which is at the same place there."""
    beside = Path(sys.executable).with_name(WORKER)
    found = str(beside) if beside.exists() else shutil.which(WORKER)
    if found is None:
        raise RunnerError(
            f"the program {WORKER} was not found beside {sys.executable}: install tillroll there, "
            "and at the same place on the machines of the cluster, or pass "
            "--environment_option=process_command=PATH"
        )
    return found
