"""Runners: the local traps are avoided, and what a remote one lacks is named."""

import re

import pytest

pytest.importorskip("apache_beam")

from apache_beam.options.pipeline_options import (
    DirectOptions,
    PipelineOptions,
    StandardOptions,
    WorkerOptions,
)
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from beam_jobs.running.runner import RunnerError, beam_options, choose_runner, is_local_runner

DATAFLOW = ["--project=p", "--region=r", "--temp_location=gs://b/temp"]


LOCAL = ("local", "DirectRunner", "direct", "SwitchingDirectRunner", "FnApiRunner", "fnapi")


@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.parametrize("workers", [1, 3])
def test_local_names_mean_the_runner_in_this_process(name: str, workers: int) -> None:
    options = PipelineOptions([])
    runner = choose_runner(name, options, workers)
    assert is_local_runner(name)
    assert type(runner) is FnApiRunner
    assert options.view_as(DirectOptions).direct_num_workers == workers


@pytest.mark.parametrize(
    ("argv", "level"),
    [([], "CRITICAL"), (["--default_sdk_harness_log_level=INFO"], "INFO")],
    ids=["quiet", "as_asked_for"],
)
def test_local_workers_log_only_what_is_asked_for(argv: list[str], level: str) -> None:
    options = beam_options(argv)
    choose_runner("local", options, 2)
    assert options.view_as(WorkerOptions).default_sdk_harness_log_level == level


@pytest.mark.parametrize("name", ["local", "FlinkRunner", "SparkRunner", "DataflowRunner"])
@pytest.mark.parametrize("workers", [0, -3])
def test_a_job_has_a_worker(name: str, workers: int) -> None:
    with pytest.raises(RunnerError, match=f"^--workers must be at least 1, got {workers}$"):
        choose_runner(name, beam_options(DATAFLOW), workers)


@pytest.mark.parametrize("name", LOCAL)
def test_threads_are_refused(name: str) -> None:
    sentence = (
        "--direct_running_mode=multi_threading loses records silently (a fault of Beam): leave it "
        "out, and set the number of processes with --workers"
    )
    options = beam_options(["--direct_running_mode=multi_threading"])
    with pytest.raises(RunnerError, match=f"^{re.escape(sentence)}$"):
        choose_runner(name, options, 2)


def test_other_runners_are_beams() -> None:
    options = beam_options(["--job_endpoint=localhost:1"])
    runner = choose_runner("PortableRunner", options, 2)
    assert type(runner).__name__ == "PortableRunner"
    assert options.view_as(StandardOptions).runner == "PortableRunner"


def test_an_unknown_runner_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Unexpected pipeline runner: FooRunner\. Valid values"):
        choose_runner("FooRunner", PipelineOptions([]), 2)


@pytest.mark.parametrize(
    ("argv", "absent"),
    [
        ([], "--project, --region, --temp_location"),
        (["--project=p", "--temp_location=gs://b/t"], "--region"),
    ],
    ids=["nothing", "no_region"],
)
def test_dataflow_needs_its_options(argv: list[str], absent: str) -> None:
    sentence = (
        f"DataflowRunner needs {absent}: for example --project=my-project --region=europe-west4 "
        "--temp_location=gs://my-bucket/temp"
    )
    with pytest.raises(RunnerError, match=f"^{re.escape(sentence)}$"):
        choose_runner("DataflowRunner", beam_options(argv), 2)


@pytest.mark.parametrize("name", ["DataflowRunner", "dataflow", "dataflowrunner"])
def test_dataflow_needs_the_package(name: str) -> None:
    with pytest.raises(RunnerError, match="Dataflow's workers need tillroll itself") as caught:
        choose_runner(name, beam_options(DATAFLOW), 2)
    for way in ("--setup_file=./setup.py", "--extra_package=", "--sdk_container_image="):
        assert way in str(caught.value)


@pytest.mark.parametrize(
    "package",
    ["--setup_file=./setup.py", "--extra_package=t.whl", "--sdk_container_image=r/t:1"],
)
def test_dataflow_with_the_package(package: str) -> None:
    pytest.importorskip("google.cloud.storage")
    runner = choose_runner("DataflowRunner", beam_options([*DATAFLOW, package]), 2)
    assert type(runner).__name__ == "DataflowRunner"


def test_dataflow_does_not_reach_files_of_this_machine() -> None:
    options = beam_options([*DATAFLOW, "--setup_file=./setup.py"])
    sentence = "Dataflow's workers can't reach /in.csv, /out on this machine: copy it to Cloud"
    with pytest.raises(RunnerError, match=f"^{sentence}"):
        choose_runner("DataflowRunner", options, None, ("/in.csv", "gs://b/images", "/out"))


def test_beams_options_are_read() -> None:
    options = beam_options(["--project=p", "--temp_location", "gs://b/t", "--experiments=e"])
    assert options.get_all_options(drop_default=True) == {
        "project": "p",
        "temp_location": "gs://b/t",
        "experiments": ["e"],
    }


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        pytest.param(["--shard=8"], "--shard", id="misspelt"),
        pytest.param(["--shard", "8"], "--shard", id="misspelt_in_two_words"),
        pytest.param(["--nonsense"], "--nonsense", id="flag"),
        pytest.param(["--project=p", "--zz=1"], "--zz", id="beside_a_known_one"),
        pytest.param(["currency:category"], "currency:category", id="stray_value"),
        pytest.param(["--project=p", "stray"], "stray", id="stray_value_after_an_option"),
    ],
)
def test_unknown_options_are_refused(argv: list[str], name: str) -> None:
    with pytest.raises(RunnerError, match=f"^unknown .*{name}") as caught:
        beam_options(argv)
    assert "see --help for the command's options" in str(caught.value)
