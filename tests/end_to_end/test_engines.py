"""A build on clusters of Flink and Spark that run on this machine, with a worker being killed.

Then predictions, by a model that stands in for one of TensorFlow.

Beam's job servers are taken from where Beam keeps those that it has fetched or, in a checkout with
a folder ../shared, are made there. `make engines` does more.
"""

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("psutil")
pytest.importorskip("tensorflow", reason="run once, by `make test`: it takes minutes")

from apache_beam.version import __version__ as beam_version

from benchmarks.engines.builds import SHARDS, equal_files, run_build
from benchmarks.engines.cluster import SDK_WORKER, Cluster, answer
from benchmarks.engines.fetch import FLINK, SPARK, distribution, job_server_options
from benchmarks.engines.flink import flink_cluster
from benchmarks.engines.spark import spark_cluster
from tests.support import fake_model
from tests.support.processes import run_python
from tests.support.receipts import write_receipts

ROOT = Path(__file__).parents[2]
DOWNLOADS = ROOT / "build" / "engines"
FETCHED = Path.home() / ".apache_beam" / "cache" / "jars"
MAKE_VERSION = "2.72.0"  # of Beam, whose job servers it makes
MAKE = ROOT.parent / "shared" / "engines" / "build-job-servers"
# Five JVMs compile for longer than they work here.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_KILLS = 3  # one may hit a worker that has nothing to do any more
CLUSTERS = {"flink": (FLINK, flink_cluster), "spark": (SPARK, spark_cluster)}


def job_server(engine: str) -> tuple[str, ...]:
    """Options that name the job server of an engine, which is made if it can be."""
    package, _ = CLUSTERS[engine]
    for folder in (FETCHED, DOWNLOADS):
        with suppress(FileNotFoundError):
            return job_server_options(package, folder)
    if beam_version == MAKE_VERSION and MAKE.exists() and shutil.which("mvn"):
        subprocess.run([MAKE, DOWNLOADS, engine], check=True)
        return job_server_options(package, DOWNLOADS)
    pytest.skip(f"no job server of {engine} of Beam {beam_version} in {FETCHED} or {DOWNLOADS}")


def has_noticed(engine: str, running: Cluster, folder: Path) -> bool:
    """Tells whether the engine has seen work fail."""
    if engine == "spark":
        logs = [path.read_text(errors="replace") for path in folder.glob("worker-*/*/*/stderr")]
        return any("clearing outstanding requests" in log for log in logs)
    [master] = [option for option in running.options if option.startswith("--flink_master=")]
    jobs = f"{master.partition('=')[2]}/jobs"
    histories = [
        answer(f"{jobs}/{job['id']}/exceptions")["exceptionHistory"]["entries"]
        for job in answer(jobs)["jobs"]
    ]
    return any(histories)


def predict(model: Path, table: Path, output: Path, *options: str) -> None:
    where = ("--input", str(table), "--output", str(output))
    run_python("-m", "beam_jobs.predict", str(model), *where, "--quiet", *options)


@pytest.mark.slow
@pytest.mark.parametrize("engine", CLUSTERS)
def test_a_cluster_gives_the_same_bytes(
    engine: str, build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("java") is None:
        pytest.skip("no Java")
    for name, value in {"JAVA_TOOL_OPTIONS": QUICK_JAVA, **fake_model.variables()}.items():
        monkeypatch.setenv(name, value)
    package, cluster = CLUSTERS[engine]
    options = job_server(engine)
    table = write_receipts(tmp_path / "receipts", {"a": 40, "b": 20, "c": 1})
    assert build(table, tmp_path / "local", f"--shards={SHARDS}") == 0
    model, folder = fake_model.write_model(tmp_path / "model"), tmp_path / "cluster"
    with cluster(distribution(package, DOWNLOADS), folder, options=options) as running:
        for _ in range(_KILLS):
            run_build(table, tmp_path / "out", running, victim=SDK_WORKER)
            if has_noticed(engine, running, folder):
                break
        else:
            pytest.fail(f"the engine has noticed none of {_KILLS} kills")
        predict(model, table, tmp_path / "predicted", *running.options)
    assert equal_files(tmp_path / "out", tmp_path / "local")
    predict(model, table, tmp_path / "predicted-here", "--workers=2")
    assert equal_files(tmp_path / "predicted", tmp_path / "predicted-here")
