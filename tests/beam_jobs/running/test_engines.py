"""Options that are set for Flink and Spark, and those that a user must give."""

import json
import re
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.runners.portability.job_server import JavaJarJobServer

from beam_jobs.running import engines
from beam_jobs.running.runner import RunnerError, beam_options, choose_runner
from beam_jobs.running.versions import versions

COMMAND = "--environment_option=process_command=/opt/worker"


@pytest.fixture(autouse=True)
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Python with the worker's program beside it, and Java."""
    path = tmp_path / engines.WORKER
    path.touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(engines, "_java_version", lambda _: 17)
    monkeypatch.setattr(JavaJarJobServer, "local_jar", staticmethod(lambda url, _: url))
    return str(path)


class Flink:
    """The answers of a cluster's REST service."""

    def __init__(self) -> None:
        self.overview: dict[str, Any] = {"flink-version": "1.19.2", "slots-total": 6}
        self.slots = [2, 4]
        self.config = {"restart-strategy.type": "fixed-delay"}
        self.jobs: list[dict[str, str]] = []
        self.address = ""

    def answer(self, path: str) -> Any:
        return {
            "/overview": self.overview,
            "/jobs/overview": {"jobs": self.jobs},
            "/taskmanagers": {"taskmanagers": [{"slotsNumber": number} for number in self.slots]},
            "/jobmanager/config": [
                {"key": key, "value": value} for key, value in self.config.items()
            ],
        }[path]


@pytest.fixture
def flink() -> Iterator[Flink]:
    cluster = Flink()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(cluster.answer(self.path)).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    cluster.address = f"127.0.0.1:{server.server_port}"
    yield cluster
    server.shutdown()
    server.server_close()


@pytest.fixture
def spark() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as master:
        yield f"spark://127.0.0.1:{master.getsockname()[1]}"


def on_flink(flink: Flink, *arguments: str, workers: int | None = None) -> PipelineOptions:
    options = beam_options([f"--flink_master={flink.address}", *arguments])
    assert type(choose_runner("FlinkRunner", options, workers)).__name__ == "FlinkRunner"
    return options


def on_spark(spark: str, *arguments: str, workers: int | None = None) -> PipelineOptions:
    options = beam_options([f"--spark_master_url={spark}", *arguments])
    assert type(choose_runner("spark", options, workers)).__name__ == "SparkRunner"
    return options


def test_python_runs_in_processes(flink: Flink, spark: str, worker: str) -> None:
    for options in (on_flink(flink), on_spark(spark)):
        portable = options.view_as(PortableOptions)
        assert portable.environment_type == "PROCESS"
        assert portable.environment_options == [
            f"process_command={worker}",
            f"process_variables=TILLROLL_VERSIONS={versions()}",
        ]


@pytest.mark.parametrize(
    ("given", "kind", "command"),
    [
        ([COMMAND], "PROCESS", ["process_command=/opt/worker"]),
        (["--environment_type=DOCKER"], "DOCKER", None),
        (["--environment_type=PROCESS", '--environment_config={"command": "x"}'], "PROCESS", None),
    ],
    ids=["command", "container", "config"],
)
def test_where_python_runs_is_the_users_choice(
    given: list[str], kind: str, command: list[str] | None, flink: Flink
) -> None:
    portable = on_flink(flink, *given).view_as(PortableOptions)
    assert (portable.environment_type, portable.environment_options) == (kind, command)


@pytest.mark.parametrize(
    ("arguments", "workers", "parallelism"),
    [((), None, 6), ((), 5, 5), (("--parallelism=3",), 5, 3)],
    ids=["all slots", "--workers", "--parallelism"],
)
def test_parallelism(
    arguments: tuple[str, ...], workers: int | None, parallelism: int, flink: Flink, capsys
) -> None:
    options = on_flink(flink, *arguments, workers=workers)
    assert options.view_as(FlinkRunnerOptions).parallelism == parallelism
    assert capsys.readouterr().err == ""


def test_what_the_cluster_is_decides(flink: Flink) -> None:
    options = on_flink(flink)
    assert options.view_as(FlinkRunnerOptions).flink_version == "1.19"
    assert options.view_as(PortableOptions).sdk_worker_parallelism == 4
    options = on_flink(flink, "--sdk_worker_parallelism=3")
    assert options.view_as(PortableOptions).sdk_worker_parallelism == "3"


@pytest.mark.parametrize(
    ("change", "workers", "warning"),
    [
        ({"slots": 6}, 7, "warning: the Flink cluster has 6 slots and the job asks for 7: it"),
        ({"config": {}}, None, "warning: the Flink cluster has no restart strategy, so the job"),
        ({"config": {"restart-strategy": "none"}}, None, "warning: the Flink cluster has no rest"),
    ],
    ids=["slots", "no restart", "restart off"],
)
def test_what_a_cluster_lacks_is_said(
    change: dict[str, Any], workers: int | None, warning: str, flink: Flink, capsys
) -> None:
    flink.config = change.get("config", flink.config)
    on_flink(flink, workers=workers)
    said = capsys.readouterr().err
    assert said.startswith(warning)
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("overview", "sentence"),
    [
        (
            {"flink-version": "9.1.0"},
            "the Flink cluster at http://ADDRESS is of version 9.1.0, and this Beam knows ",
        ),
        (
            {"slots-total": 0},
            "the Flink cluster at http://ADDRESS has no task slots yet: start TaskManagers or, if ",
        ),
        (
            {"flink-version": None},
            "what answers at http://ADDRESS is no Flink cluster: --flink_master is the address of",
        ),
    ],
    ids=["version", "no slots", "no Flink"],
)
def test_clusters_that_cannot_work(overview: dict[str, Any], sentence: str, flink: Flink) -> None:
    flink.overview = {k: v for k, v in (flink.overview | overview).items() if v is not None}
    with pytest.raises(
        RunnerError, match=f"^{re.escape(sentence.replace('ADDRESS', flink.address))}"
    ):
        on_flink(flink)


def test_slots_that_come_with_the_job(flink: Flink) -> None:
    flink.overview["slots-total"], flink.slots = 0, []
    flink.config |= {"taskmanager.numberOfTaskSlots": "4"}
    options = on_flink(flink, workers=8)
    assert options.view_as(FlinkRunnerOptions).parallelism == 8
    assert options.view_as(PortableOptions).sdk_worker_parallelism == 4


def test_a_job_that_writes_to_the_same_place_is_awaited(flink: Flink) -> None:
    def name(*arguments: str, output: str = "/out") -> str:
        options = beam_options([f"--flink_master={flink.address}", *arguments])
        choose_runner("FlinkRunner", options, None, (output, "/in"))
        return str(options.view_as(GoogleCloudOptions).job_name)

    own, other = name(), name(output="/out2")
    assert own != other
    assert name("--job_name=nightly") == "nightly"
    flink.jobs = [
        {"jid": "1", "name": own, "state": "FAILED"},
        {"jid": "2", "name": other, "state": "RUNNING"},
    ]
    assert name() == own
    flink.jobs.append({"jid": "3", "name": own, "state": "RESTARTING"})
    sentence = f"the Flink cluster at http://{flink.address} still runs the job 3, which writes to "
    with pytest.raises(RunnerError, match=f"^{re.escape(sentence)}/out: wait until it ends, or "):
        name()


def test_one_of_several_spark_masters_is_enough(spark: str) -> None:
    on_spark(spark.replace("spark://", "spark://127.0.0.1:1,"))


@pytest.mark.parametrize("master", ["yarn", "k8s://https://h:6443", "mesos://h:5050"])
def test_spark_must_be_a_standalone_cluster(master: str) -> None:
    sentence = "--spark_master_url must be that of a standalone cluster, such as spark://master"
    with pytest.raises(RunnerError, match=f"^{sentence}.*, got {re.escape(master)}: Beam's job"):
        on_spark(master)


def test_files_of_this_machine_are_named(flink: Flink, capsys: pytest.CaptureFixture[str]) -> None:
    paths = ("s3://bucket/in.parquet", "/data/out")
    options = beam_options([f"--flink_master={flink.address}"])
    choose_runner("FlinkRunner", options, None, paths)
    assert capsys.readouterr().err == ""  # the cluster runs here
    options = beam_options(["--job_endpoint=cluster:8099"])
    choose_runner("FlinkRunner", options, None, paths)
    assert capsys.readouterr().err.startswith(
        "warning: /data/out: workers on other machines must find the same files there, as on a sh"
    )


def test_a_job_server_that_cannot_be_fetched_is_named(
    flink: Flink, spark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(url: str, _: str | None) -> None:
        raise RuntimeError(f"no way to {url}")

    monkeypatch.setattr(JavaJarJobServer, "local_jar", staticmethod(refuse))
    for start, name in (
        (partial(on_flink, flink), "flink-1.19"),
        (partial(on_spark, spark), "spark-3"),
    ):
        with pytest.raises(RunnerError) as error:
            start()
        assert re.search(
            rf"^Beam's job server can't be fetched: no way to https://.*{name}-job-server-.*\.jar"
            rf"\. Or name the file with --{name.partition('-')[0]}_job_server_jar$",
            str(error.value),
        )


def test_spark_gets_cores_and_what_java_17_asks_for(spark: str) -> None:
    own = "--job_server_jvm_property=-Xmx2g"
    options = on_spark(spark, own, workers=3)
    properties = options.view_as(JobServerOptions).job_server_jvm_properties
    assert properties[-2:] == ["-Dspark.cores.max=3", "-Xmx2g"]
    assert "--add-opens=java.base/java.nio=ALL-UNNAMED" in properties
    assert options.view_as(PortableOptions).sdk_worker_parallelism == 0


def test_java_compiles_once_unless_the_user_chooses(flink: Flink, spark: str) -> None:
    own = "-XX:TieredStopAtLevel=4"
    given = f"--job_server_jvm_property={own}"
    for options in (on_flink(flink, given), on_spark(spark, given)):
        properties = options.view_as(JobServerOptions).job_server_jvm_properties
        assert properties.index("-XX:TieredStopAtLevel=1") < properties.index(own)
    executors = "-Dspark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1"
    assert executors in properties


def test_a_job_server_knows_its_cluster() -> None:
    for name in ("FlinkRunner", "SparkRunner"):
        options = beam_options(["--job_endpoint=localhost:1"])
        choose_runner(name, options, 4)
        assert options.view_as(PortableOptions).environment_type == "PROCESS"
    options = beam_options(["--job_endpoint=localhost:1"])
    choose_runner("FlinkRunner", options, 4)
    assert options.view_as(FlinkRunnerOptions).parallelism == 4


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        (
            "FlinkRunner",
            [],
            "FlinkRunner needs the address of its cluster: for example "
            "--flink_master=http://jobmanager:8081. On this machine alone",
        ),
        (
            "SparkRunner",
            [],
            "SparkRunner needs the address of its cluster: for example "
            "--spark_master_url=spark://master:7077. On this machine alone",
        ),
        (
            "FlinkRunner",
            ["--flink_master=127.0.0.1:1"],
            "no Flink cluster answers at http://127.0.0.1:1 (",
        ),
        (
            "SparkRunner",
            ["--spark_master_url=spark://127.0.0.1:1"],
            "no Spark master answers at spark://127.0.0.1:1 (",
        ),
        (
            "SparkRunner",
            ["--spark_master_url=spark://h", "--spark_job_server_jar=/no/such.jar"],
            "--spark_job_server_jar=/no/such.jar is not a file: leave it out, and Beam fetches",
        ),
    ],
    ids=["Flink without", "Spark without", "Flink silent", "Spark silent", "no jar"],
)
def test_clusters_that_cannot_be_reached(name: str, arguments: list[str], sentence: str) -> None:
    with pytest.raises(RunnerError, match=f"^{re.escape(sentence)}"):
        choose_runner(name, beam_options(arguments), None)


def test_java_is_asked_for(flink: Flink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(
        RunnerError, match="FlinkRunner needs Java, from version 11 on, for the job"
    ):
        on_flink(flink)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("no such thing", None),
    ],
)
def test_the_version_of_java_is_read(
    said: str, version: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    assert engines._java_version(str(java)) == version


def test_an_old_java_is_refused(flink: Flink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_java_version", lambda _: 8)
    with pytest.raises(RunnerError, match=r"from version 11 on, .*, and java is of version 8: ins"):
        on_flink(flink)


def test_the_workers_program_is_asked_for(
    flink: Flink, worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(worker).unlink()
    monkeypatch.setattr(shutil, "which", {"java": "/usr/bin/java"}.get)
    with pytest.raises(RunnerError, match="the program tillroll-sdk-worker was not found beside"):
        on_flink(flink)
