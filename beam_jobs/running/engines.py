"""Options that jobs on Flink and Spark share: a job server, and where Python runs."""

import re
import shutil
import subprocess
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
from apache_beam.runners.portability.job_server import JavaJarJobServer

from beam_jobs.running.versions import VARIABLE, versions
from beam_jobs.storage import files

WORKER = "tillroll-sdk-worker"
# Java's first compiler alone. All that Java does for a job is to hand bytes to Python, and most of
# a small job's time would go into compiling that a second time, as fast as it gets.
QUICK_JAVA = "-XX:TieredStopAtLevel=1"
_OLDEST_JAVA = 11
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


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

    Each is told the versions of this process, and ends if it has others.

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
        if not portable.lookup_environment_option("process_variables"):
            portable.add_environment_option(f"process_variables={VARIABLE}={versions()}")


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
    needs = f"{name} needs Java, from version {_OLDEST_JAVA} on, for the job server of Beam"
    if shutil.which(java) is None:
        raise RunnerError(
            f"{needs}, and the program {java} was not found: install it, or name it with "
            "--job_server_java_launcher, or pass --job_endpoint=HOST:PORT of a job server"
        )
    version = _java_version(java)
    if version is not None and version < _OLDEST_JAVA:
        raise RunnerError(
            f"{needs}, and {java} is of version {version}: install a newer one, or name it with "
            "--job_server_java_launcher"
        )


def fetch_job_server(server: JavaJarJobServer, flag: str, options: PipelineOptions) -> None:
    """Fetches Beam's job server from Maven unless it is there, before anything is begun.

    Args:
      server: what the runner will start.
      flag: the option that names a job server.
      options: the job's options.

    Raises:
      RunnerError: it can't be fetched.
    """
    cache = options.view_as(JobServerOptions).jar_cache_dir
    try:
        server.local_jar(server.path_to_jar(), cache)
    except (RuntimeError, OSError) as error:
        raise RunnerError(
            f"Beam's job server can't be fetched: {error}. Or name the file with {flag}"
        ) from error


def warn_of_local_files(name: str, options: PipelineOptions, paths: Sequence[str]) -> None:
    """Says so if a cluster on other machines is to use files of this one.

    Args:
      name: name of the runner.
      options: the job's options.
      paths: files and folders that the workers read and write.
    """
    flink, spark = options.view_as(FlinkRunnerOptions), options.view_as(SparkRunnerOptions)
    master = options.view_as(PortableOptions).job_endpoint or (
        flink.flink_master if is_flink(name) else spark.spark_master_url
    )
    address = urlsplit(master if "://" in master else f"http://{master}")
    local = [path for path in paths if files.is_local(path)]
    if local and address.hostname not in _THIS_MACHINE:
        print(
            f"warning: {', '.join(local)}: workers on other machines must find the same files "
            "there, as on a shared volume; else name an object store or HDFS",
            file=sys.stderr,
        )


def _java_version(launcher: str) -> int | None:
    """Returns the major version of Java, such as 17, or 8 for 1.8; None if it can't be read."""
    said = subprocess.run([launcher, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    return int(match.group(1)) if match else None


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
