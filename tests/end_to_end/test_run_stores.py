"""Run folders in object stores, on servers of their protocols."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("apache_beam")

import tensorflow as tf

from beam_jobs.storage import files
from pipeline.distribution.stop_request import STOPPED
from tests.support.processes import ROOT, own_lines, processes, wait_until
from tests.support.stores import TestStore, started

TASK = (
    "--task=tests.support.tiny_task:TinyTask",
    "--quiet",
    "--global-batch-size=8",
    "--evaluation-split=train",
)
OPTIONS = (
    "--steps=60",
    "--steps-per-call=5",
    "--checkpoint-every=10",
    "--evaluate-every=30",
    "--model.dropout=0.3",
)
PARTS = ("step-15.part-00000-of-00001.index", "step-15_temp/part-00000-of-00001.index")


@pytest.fixture(params=["s3", "gs"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TestStore]:
    if request.param == "s3":
        pytest.importorskip("tensorflow_io")
    with started(request.param, tmp_path) as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        yield store


def command(directory: Path, run_dir: str | Path, *options: str) -> list[str]:
    return ["pipeline.train", str(directory), f"--run-dir={run_dir}", *TASK, *OPTIONS, *options]


def names(url: str) -> set[str]:
    """Names of all objects below a URL, without the empty ones that TensorFlow makes of folders."""
    found = (path.removeprefix(f"{url}/") for path in files.list_below(url))
    return {name for name in found if name and not name.endswith("/")}


def download(url: str, folder: Path) -> Path:
    for name in names(url):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files.read(files.join(url, name)))
    return folder


def weights(run_dir: Path, kind: str) -> tuple[list[str], dict[str, np.ndarray]]:
    """Names of the checkpoints, and all variables of the newest but how many there were."""
    found = sorted(path.stem for path in (run_dir / kind).glob("*.index"))
    reader = tf.train.load_checkpoint(str(run_dir / kind / found[-1]))
    return found, {
        name: reader.get_tensor(name)
        for name, dtype in reader.get_variable_to_dtype_map().items()
        if dtype != tf.string and not name.startswith("save_counter")
    }


def log(run_dir: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]


def test_a_run_that_was_killed_ends_with_the_weights_of_a_local_one(
    store: TestStore, directory: Path, tmp_path: Path
):
    url = f"{store.root}/runs/first"
    again = {"worker": [command(directory, url)]}
    with processes(tmp_path / "first", again) as started:
        wait_until(lambda: f"{url}/checkpoints/step-20.index" in files.list_below(url), started)
        started[0].kill()
    assert f"{url}/checkpoints/step-60.index" not in files.list_below(url)
    for name in PARTS:  # of checkpoints that were being written, in S3 and in Google Cloud Storage
        files.write(f"{url}/checkpoints/{name}", b"part")
    with processes(tmp_path / "second", again) as started:
        wait_until(started[0].has_ended, started)
        assert re.search(
            rf"^process \d+ on \S+ has trained in run folder {url} and has not come to an end: if "
            "it still runs, it ends before its next checkpoint$",
            started[0].errors(),
            re.MULTILINE,
        )
    local = tmp_path / "local"
    with processes(tmp_path / "third", {"worker": [command(directory, local)]}) as started:
        wait_until(started[0].has_ended, started)
    found = download(url, tmp_path / "found")
    assert not list((found / "checkpoints").rglob("*part-*"))
    for kind in ("checkpoints", "best"):
        (own_names, expected), (found_names, values) = weights(local, kind), weights(found, kind)
        assert found_names == own_names
        assert values.keys() == expected.keys()
        assert len(values) > 5
        for name, value in expected.items():
            np.testing.assert_array_equal(values[name], value, err_msg=name)
    losses = {line["step"]: line["loss"] for line in log(found) if "loss" in line}
    assert losses == {line["step"]: line["loss"] for line in log(local) if "loss" in line}
    assert [line["step"] for line in log(found) if "validation/loss" in line] == [30, 60]
    assert [line for line in log(found) if "time" in line][-1]["time"]["lost"] > 0
    for picture in ("confusion.png", "samples.png"):
        assert (found / picture).read_bytes() == (local / picture).read_bytes()
    assert (found / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert (found / "trainer.lock").read_text() == "nobody\n"
    own = {path.name for path in local.iterdir()}
    assert {path.name for path in found.iterdir()} == own
    assert list((found / "tensorboard").iterdir())


def test_whoever_comes_last_has_the_folder(store: TestStore, directory: Path, tmp_path: Path):
    url = f"{store.root}/runs/taken"
    arguments = command(directory, url, "--steps=100000", "--checkpoint-every=10")
    with processes(tmp_path / "first", {"worker": [arguments]}) as started:
        wait_until(lambda: f"{url}/checkpoints/step-20.index" in files.list_below(url), started)
        files.write(f"{url}/trainer.lock", b"process 7 on other 1234\n")
        assert started[0].wait() == STOPPED, started[0].errors()
        (line,) = own_lines(started[0].errors())[-1:]
    sentence = (
        rf"another process has taken over run folder {url}: this one ends at step [\d,]+, and "
        "writes nothing more"
    )
    assert re.fullmatch(sentence, line)
    assert files.read(f"{url}/trainer.lock") == b"process 7 on other 1234\n"


def test_a_bucket_that_is_not_there(store: TestStore, directory: Path):
    url = store.root.replace("receipts", "elsewhere") + "/run"
    done = subprocess.run(
        [sys.executable, "-m", *command(directory, url)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    last = own_lines(done.stderr)[-1]
    assert re.fullmatch(
        rf"python -m pipeline\.train: error: run folder {url} can't be reached \(.+\): check the "
        "bucket, the credentials and the network",
        last,
    )
    assert "Traceback" not in done.stderr
