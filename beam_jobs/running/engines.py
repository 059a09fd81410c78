"""Options of Flink and Spark that users need not know: where Python runs, how often it starts."""

import shutil
import sys
from pathlib import Path

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
    SparkRunnerOptions,
)

WORKER = "tillroll-sdk-worker"
# Without it, each stage of a job starts Python anew on each slot.
_KEEP_WORKERS_MS = 60_000


class RunnerError(ValueError):
    """The runner's options can't work; the message says what to change."""


def is_flink(name: str) -> bool:
    """Returns whether a name, in any case, means Flink."""
    return name.lower() in ("flink", "flinkrunner")


def is_spark(name: str) -> bool:
    """Returns whether a name, in any case, means Spark."""
    return name.lower() in ("spark", "sparkrunner")


def set_engine_options(name: str, options: PipelineOptions, workers: int | None) -> None:
    """Sets what a job needs on Flink or Spark, unless the user has.

    Args:
      name: the runner's name.
      options: the job's options, which are changed.
      workers: how many workers the user asked for; None if not at all.

    Raises:
      RunnerError: the address of the cluster is missing.
    """
    portable = options.view_as(PortableOptions)
    if not portable.job_endpoint:
        _check_address(name, options)
    if is_flink(name) and workers is not None:
        flink = options.view_as(FlinkRunnerOptions)
        if flink.parallelism == -1:
            flink.parallelism = workers
    if portable.environment_type is None:
        portable.environment_type = "PROCESS"
    if portable.environment_type == "PROCESS":
        if portable.lookup_environment_option("process_command") is None:
            portable.add_environment_option(f"process_command={_worker_command()}")
        portable.environment_cache_millis = portable.environment_cache_millis or _KEEP_WORKERS_MS


def _check_address(name: str, options: PipelineOptions) -> None:
    """Raises RunnerError unless the options name a cluster."""
    if is_flink(name):
        address = options.view_as(FlinkRunnerOptions).flink_master
        flag, example = "--flink_master", "http://jobmanager:8081"
    else:
        address = options.view_as(SparkRunnerOptions).spark_master_url
        flag, example = "--spark_master_url", "spark://master:7077"
    if address.startswith(("[", "local")):
        raise RunnerError(
            f"{name} needs the address of its cluster: for example {flag}={example}. On this "
            "machine alone, leave --runner out: that is faster"
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
