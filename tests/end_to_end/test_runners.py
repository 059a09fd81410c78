"""The same job on other runners: portable, and Dataflow as far as it goes offline."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.build import main
from beam_jobs.errors import BuildError
from tests.support.receipts import contents

ROOT = Path(__file__).parents[2]


def test_portable_runner_gives_the_same_bytes(
    table: Path, dataset: Path, tmp_path: Path, job_endpoint: str
):
    status = main(
        [
            "--input",
            str(table),
            "--output",
            str(tmp_path / "out"),
            "--shards=4",
            "--label=total:float",
            "--label=language:category",
            "--runner=PortableRunner",
            f"--job_endpoint={job_endpoint}",
            "--environment_type=LOOPBACK",
        ]
    )
    assert status == 0
    assert contents(tmp_path / "out") == contents(dataset)


def test_the_command_prints_its_summary_and_nothing_else(table: Path, tmp_path: Path):
    output = tmp_path / "out"
    command = [sys.executable, "-m", "beam_jobs.build", "--quiet", "--workers=2"]
    command += ["--input", str(table), "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.startswith(f"{output} is complete\n  inputs ")
    assert done.stdout.count("\n") == 13


def dataflow_arguments(folder: Path) -> list[str]:
    for name in ("temp", "staging"):
        (folder / name).mkdir()
    return [
        "--input=gs://bucket/receipts.parquet",
        "--output=gs://bucket/receipts",
        "--label=total:float",
        "--shards=8",
        "--runner=DataflowRunner",
        "--project=project",
        "--region=europe-west4",
        "--no_auth",
        f"--temp_location={folder / 'temp'}",
        f"--staging_location={folder / 'staging'}",
        "--dataflow_endpoint=http://localhost:1",
        f"--template_location={folder / 'job.json'}",
    ]


def test_dataflow_job_is_complete_and_installable(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("apache_beam.io.gcp.gcsio", reason="needs the extra dataflow")
    monkeypatch.chdir(ROOT)
    assert main([*dataflow_arguments(tmp_path), "--setup_file=./setup.py"]) == 0
    assert "the job was staged, not run" in capsys.readouterr().out

    job = json.loads((tmp_path / "job.json").read_text())
    pool = job["environment"]["workerPools"][0]
    assert "workflow.tar.gz" in json.dumps(pool["packages"])
    pipeline = (tmp_path / "staging" / "pipeline.pb").read_bytes()
    for stage in (b"Prepare", b"FindDuplicates", b"Plan", b"Deal", b"WriteShard", b"Publish"):
        assert stage in pipeline
    # What is pickled by reference to __main__ does not exist on a worker.
    assert b"c__main__" not in pipeline

    with tarfile.open(tmp_path / "staging" / "workflow.tar.gz") as archive:
        names = {re.sub(r"^[^/]*/", "", name) for name in archive.getnames()}
    assert {"setup.py", "pyproject.toml", "beam_jobs/job.py", "schemas/index.py"} <= names


def test_staged_job_refuses_to_replace(dataset: Path, table: Path, capsys, tmp_path: Path):
    """A job that was staged with one output finds it finished when it is run."""
    import apache_beam as beam

    from beam_jobs.errors import build_error_in
    from beam_jobs.job import add_build
    from beam_jobs.options import BuildOptions
    from beam_jobs.sources.source import Source

    source = Source(path=str(table), format="jsonl", columns={}, image_root=str(table.parent))
    pipeline = beam.Pipeline(runner="FnApiRunner")
    shutil.copytree(dataset, tmp_path / "out")
    add_build(pipeline, BuildOptions(source=source, output=str(tmp_path / "out")))
    with pytest.raises(BuildError) as error:
        pipeline.run()
    assert "holds a finished dataset" in (build_error_in(error.value) or "")
    left = contents(tmp_path / "out")
    assert {name: left[name] for name in left if not name.startswith("_staging/")} == contents(
        dataset
    )


def test_staged_job_marks_its_staging_directory(table: Path, build, tmp_path: Path, capsys):
    """A job that was staged has no process that launched it and could have done so."""
    import apache_beam as beam

    from beam_jobs.job import add_build
    from beam_jobs.options import BuildOptions
    from beam_jobs.sources.source import Source

    missing = Source(path=str(table), format="jsonl", columns={}, image_root=str(tmp_path))
    pipeline = beam.Pipeline(runner="FnApiRunner")
    add_build(pipeline, BuildOptions(source=missing, output=str(tmp_path / "out")))
    with pytest.raises(BuildError, match="inputs were rejected"):
        pipeline.run()
    staging = {name.split("/")[1] for name in contents(tmp_path / "out")}
    assert {"BUILD", "prepared", "rows"} <= staging
    assert build(table, tmp_path / "out") == 0
    assert not (tmp_path / "out" / "_staging").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param(
            ["--direct_running_mode=multi_threading"],
            "--direct_running_mode=multi_threading loses records silently",
            id="multi_threading",
        ),
        pytest.param(
            ["--runner=DataflowRunner", "--project=p"],
            "DataflowRunner needs --region, --temp_location",
            id="Dataflow without a region",
        ),
        pytest.param(
            [
                "--runner=DataflowRunner",
                "--project=p",
                "--region=r",
                "--temp_location=gs://bucket/temp",
            ],
            "Dataflow's workers need tillroll itself: pass --setup_file=./setup.py",
            id="Dataflow without a package",
        ),
        pytest.param(["--workers=0"], "--workers must be at least 1, got 0", id="no workers"),
        pytest.param(["--runner=SlowRunner"], "SlowRunner", id="no such runner"),
    ],
)
def test_options_that_cannot_work_are_refused(
    table: Path, tmp_path: Path, capsys, options: list[str], sentence: str
):
    arguments = ["--input", str(table), "--output", str(tmp_path / "out"), *options]
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
