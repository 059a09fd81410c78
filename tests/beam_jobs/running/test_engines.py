"""Options that are set for Flink and Spark, and those that a user must give."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
)

from beam_jobs.running import engines
from beam_jobs.running.engines import RunnerError, set_engine_options
from beam_jobs.running.runner import beam_options

FLINK, SPARK = "--flink_master=http://h:8081", "--spark_master_url=spark://h:7077"
COMMAND = "--environment_option=process_command=/opt/worker"


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Python with the worker's program beside it."""
    path = tmp_path / engines.WORKER
    path.touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return str(path)


def set_options(name: str, *arguments: str, workers: int | None = None) -> PipelineOptions:
    options = beam_options(arguments)
    set_engine_options(name, options, workers)
    return options


@pytest.mark.parametrize(("name", "address"), [("FlinkRunner", FLINK), ("sparkrunner", SPARK)])
def test_python_runs_in_processes_that_are_kept(name: str, address: str, worker: str) -> None:
    portable = set_options(name, address).view_as(PortableOptions)
    assert portable.environment_type == "PROCESS"
    assert portable.environment_options == [f"process_command={worker}"]
    assert portable.environment_cache_millis == 60_000


def test_what_the_user_has_set_stays(worker: str) -> None:
    portable = set_options("flink", FLINK, COMMAND, "--environment_cache_millis=5").view_as(
        PortableOptions
    )
    assert portable.environment_options == ["process_command=/opt/worker"]
    assert int(portable.environment_cache_millis) == 5
    other = set_options("flink", FLINK, "--environment_type=DOCKER").view_as(PortableOptions)
    assert (other.environment_type, other.environment_options) == ("DOCKER", None)
    assert not other.environment_cache_millis


@pytest.mark.parametrize(
    ("arguments", "workers", "parallelism"),
    [((), None, -1), ((), 6, 6), (("--parallelism=3",), 6, 3)],
)
def test_workers_are_flinks_parallelism(
    arguments: tuple[str, ...], workers: int | None, parallelism: int, worker: str
) -> None:
    options = set_options("FlinkRunner", FLINK, *arguments, workers=workers)
    assert options.view_as(FlinkRunnerOptions).parallelism == parallelism


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("FlinkRunner", "--flink_master=http://jobmanager:8081"),
        ("SparkRunner", "--spark_master_url=spark://master:7077"),
    ],
)
def test_the_address_of_a_cluster_is_asked_for(name: str, flag: str, worker: str) -> None:
    sentence = f"{name} needs the address of its cluster: for example {flag}. On this machine alone"
    with pytest.raises(RunnerError, match=f"^{re.escape(sentence)}"):
        set_options(name)
    set_options(name, "--job_endpoint=localhost:1")


def test_the_workers_program_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunnerError, match="the program tillroll-sdk-worker was not found beside"):
        set_options("FlinkRunner", FLINK)
