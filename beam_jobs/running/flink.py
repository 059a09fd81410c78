"""A Flink cluster, asked what it is before a job goes there."""

import hashlib
import json
import sys
import urllib.request
from collections.abc import Mapping
from typing import Any

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.runners.portability.flink_runner import FlinkJarJobServer, FlinkRunner

from beam_jobs.running.engines import (
    QUICK_JAVA,
    RunnerError,
    add_java_properties,
    check_cluster,
    fetch_job_server,
)

_ANSWER_S = 10
_SLOTS = "taskmanager.numberOfTaskSlots"
_NO_RESTART = ("none", "off", "disable")
_ENDED = ("FINISHED", "FAILED", "CANCELED", "SUSPENDED")


def set_flink_options(options: PipelineOptions, workers: int | None, output: str) -> None:
    """Sets the version, the parallelism and the worker processes that a cluster asks for.

    Args:
      options: the job's options, which are changed.
      workers: how many workers the user asked for; None for as many as the cluster has slots.
      output: where the job writes; "" for nowhere.

    Raises:
      RunnerError: the address is missing; the cluster does not answer, is of a version that Beam
        does not know, has no slots yet and nobody has said how many to use, or still runs a job
        with the same output; there is no job server for it.
    """
    flink, portable = options.view_as(FlinkRunnerOptions), options.view_as(PortableOptions)
    if flink.parallelism == -1 and workers is not None:
        flink.parallelism = workers
    if portable.job_endpoint:
        return  # that job server knows its cluster
    check_cluster("FlinkRunner", options)
    add_java_properties(options, [QUICK_JAVA])
    address = FlinkRunner.add_http_scheme(flink.flink_master)
    overview = _get(address, "overview")
    if not isinstance(overview, dict) or not {"flink-version", "slots-total"} <= overview.keys():
        raise RunnerError(
            f"what answers at {address} is no Flink cluster: --flink_master is the address of its "
            "REST service, such as http://jobmanager:8081"
        )
    flink.flink_version = _minor_version(address, overview["flink-version"])
    _name_job(options, address, output)
    slots = overview["slots-total"]
    if flink.parallelism == -1:
        flink.parallelism = slots
    if not flink.parallelism:
        raise RunnerError(
            f"the Flink cluster at {address} has no task slots yet: start TaskManagers or, if it "
            "starts them by itself, say with --workers how many slots the job shall use"
        )
    if 0 < slots < flink.parallelism:
        print(
            f"warning: the Flink cluster has {slots} slots and the job asks for "
            f"{flink.parallelism}: it waits until there are as many",
            file=sys.stderr,
        )
    config = {entry["key"]: entry["value"] for entry in _get(address, "jobmanager/config")}
    _warn_of_no_restart(config)
    if int(portable.sdk_worker_parallelism) == 1:
        # All slots of a TaskManager share a worker otherwise, and so one core.
        managers = _get(address, "taskmanagers")["taskmanagers"]
        portable.sdk_worker_parallelism = max(
            (manager["slotsNumber"] for manager in managers),
            # Those that come with the job, as on Kubernetes, will be like this.
            default=int(config.get(_SLOTS, 1)),
        )
    fetch_job_server(FlinkJarJobServer(options), "--flink_job_server_jar", options)


def _name_job(options: PipelineOptions, address: str, output: str) -> None:
    """Names a job by its output, unless the user has named it.

    A job goes on when the command that started it is killed. So another one that is to write to the
    same place is refused as long as it runs.
    """
    cloud = options.view_as(GoogleCloudOptions)  # which has the name for all runners
    if cloud.job_name:
        return
    cloud.job_name = f"tillroll-{hashlib.sha256(output.encode()).hexdigest()[:16]}"
    for job in _get(address, "jobs/overview")["jobs"]:
        if job["name"] == cloud.job_name and job["state"] not in _ENDED:
            raise RunnerError(
                f"the Flink cluster at {address} still runs the job {job['jid']}, which writes to "
                f"{output}: wait until it ends, or cancel it on the cluster's page; then run the "
                "same command again"
            )


def _warn_of_no_restart(config: Mapping[str, str]) -> None:
    """Says so if the cluster ends a job at the first worker that it loses.

    Batch jobs of Beam can't choose a restart strategy: its option for that is for streams only.
    """
    # The second name is that of Flink 1.18 and older.
    strategy = config.get("restart-strategy.type", config.get("restart-strategy", "none"))
    if strategy.lower() in _NO_RESTART:
        print(
            "warning: the Flink cluster has no restart strategy, so the job ends if a TaskManager "
            "or a worker is lost, and the same command resumes it; with restart-strategy.type: "
            "fixed-delay in the configuration of its JobManager, Flink itself goes on",
            file=sys.stderr,
        )


def _minor_version(address: str, version: str) -> str:
    minor = ".".join(version.split(".")[:2])
    known = FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS
    if minor not in known:
        raise RunnerError(
            f"the Flink cluster at {address} is of version {version}, and this Beam knows "
            f"{', '.join(known)}: use a cluster of one of these, or another Beam"
        )
    return minor


def _get(address: str, path: str) -> Any:
    """Returns what the cluster's REST service answers, from JSON."""
    try:
        with urllib.request.urlopen(f"{address}/{path}", timeout=_ANSWER_S) as answer:
            return json.load(answer)
    except (OSError, ValueError) as error:
        raise RunnerError(
            f"no Flink cluster answers at {address} ({error}): --flink_master is the address of "
            "its REST service, such as http://jobmanager:8081"
        ) from error
