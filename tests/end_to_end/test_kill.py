"""A build killed at any moment resumes, and ends with the bytes of one that was not."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from schemas.file_names import COMPLETED
from tests.support.receipts import contents, write_receipts

OPTIONS = ("--shards=3", "--max-side=64", "--workers=2", "--quiet")
# Each kill comes a random moment after so many files of a kind are there.
MOMENTS = [
    ("*/_staging", 0),
    ("*/_staging/rows/*", 1),
    ("*/_staging/prepared/*.npz", 1),
    ("*/_staging/prepared/*.npz", 40),
    ("*/_staging/plan.json", 1),
    ("*/_staging/finished-*/receipts-*", 1),
    ("*/_staging/finished-*/receipts-*", 6),
    ("*/receipts-*", 1),
]


def command(table: Path, output: Path) -> list[str]:
    build = [sys.executable, "-m", "beam_jobs.build"]
    return [*build, "--input", str(table), "--output", str(output), *OPTIONS]


def run(table: Path, output: Path, *options: str) -> None:
    done = subprocess.run(
        [*command(table, output), *options], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]


def start(
    table: Path, output: Path, *options: str, stderr: int = subprocess.DEVNULL
) -> subprocess.Popen:
    return subprocess.Popen(
        [*command(table, output), *options],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        text=True,
    )


def kill(process: subprocess.Popen) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_for(pattern: str, count: int, folder: Path, process: subprocess.Popen) -> None:
    """Waits until so many files match, or the process has ended."""
    while len(list(folder.glob(pattern))) < count and process.poll() is None:
        time.sleep(0.005)


def workers_of(process: subprocess.Popen) -> list[Any]:
    """Worker processes of a build, as psutil's: children of the process that forks them."""
    psutil = pytest.importorskip("psutil")
    workers = []
    with suppress(psutil.NoSuchProcess):
        for server in psutil.Process(process.pid).children():
            with suppress(psutil.NoSuchProcess):
                workers += server.children()
    return workers


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_receipts(
        tmp_path_factory.mktemp("many"), {"a": 200, "b": 90, "c": 9, "d": 1}, first=1000
    )


def test_killed_builds_resume(many: Path, tmp_path: Path, build: Callable[..., int]):
    run(many, tmp_path / "whole")
    expected = contents(tmp_path / "whole")
    rng = random.Random(0)
    stages = set()
    for moment, (pattern, count) in enumerate(MOMENTS):
        folder = tmp_path / f"killed-{moment}"
        folder.mkdir()
        output, staging = folder / "out", folder / "out" / "_staging"
        process = start(many, output)
        wait_for(pattern, count, folder, process)
        time.sleep(rng.random() / 20)
        kill(process)
        prepared = len(list(staging.glob("prepared/*.npz")))
        finished = len(list(staging.glob("finished-*/receipts-*")))
        published = (output / COMPLETED).exists()
        stages.add((prepared > 0, finished > 0, published))
        if not published or (staging / "publishing").exists():
            assert build(many, output, *OPTIONS, "--workers=1") == 0  # which starts no process
        elif staging.exists():  # the marker and empty folders were left
            refused = subprocess.run(command(many, output), check=False, capture_output=True)
            assert refused.returncode == 2
        assert contents(output) == expected
        assert not staging.exists()
    assert {(False, False, False), (True, False, False), (True, True, False)} <= stages


def test_killed_replacement_leaves_the_old_dataset(many: Path, tmp_path: Path):
    small = write_receipts(tmp_path / "small", {"x": 5})
    output = tmp_path / "out"
    run(small, output)
    before = contents(output)
    process = start(many, output, "--overwrite")
    wait_for("out/_staging/prepared/*.npz", 1, tmp_path, process)
    assert process.poll() is None, "the build ended before it had prepared a chunk"
    kill(process)
    left = contents(output)
    assert {name: left[name] for name in left if not name.startswith("_staging/")} == before
    subprocess.run([*command(many, output), "--overwrite"], check=True, capture_output=True)
    assert contents(output) != before
    assert not (output / "_staging").exists()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_build_says_how_to_resume(
    many: Path, tmp_path: Path, number: signal.Signals, workers: int
):
    options = (f"--workers={workers}",)
    process = start(many, tmp_path / "out", *options, stderr=subprocess.PIPE)
    wait_for("out/_staging/prepared/*.npz", 1, tmp_path, process)
    assert process.poll() is None, "the build ended before it had prepared a chunk"
    os.killpg(process.pid, number)  # as from a terminal: to the workers, too
    _, error = process.communicate(timeout=60)
    assert error == f"stopped by {number.name}; the same command resumes where it stopped\n"
    assert process.returncode == 128 + number
    assert not (tmp_path / "out" / COMPLETED).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_build_stopped_before_its_workers_have_connected_ends(
    many: Path, tmp_path: Path, number: signal.Signals
):
    process = start(many, tmp_path / "out", stderr=subprocess.PIPE)
    while not workers_of(process) and process.poll() is None:
        time.sleep(0.005)
    assert process.poll() is None, "the build ended before it had started a worker"
    process.send_signal(number)  # to this process alone, as a container's host does
    try:
        _, error = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        kill(process)
        raise
    assert error == f"stopped by {number.name}; the same command resumes where it stopped\n"
    assert process.returncode == 128 + number


def killed_worker_is_named(process: subprocess.Popen) -> None:
    """Kills a worker of a build, and awaits the build's end."""
    workers_of(process)[0].kill()
    try:
        _, error = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        kill(process)
        raise
    assert error.startswith("error: a worker process was killed, probably for lack of memory")
    assert "Traceback" not in error
    assert process.returncode == 1


def test_a_killed_worker_is_named(many: Path, tmp_path: Path):
    process = start(many, tmp_path / "out", stderr=subprocess.PIPE)
    wait_for("out/_staging/prepared/*.npz", 1, tmp_path, process)
    assert process.poll() is None, "the build ended before it had prepared a chunk"
    killed_worker_is_named(process)


def test_a_worker_killed_before_it_has_connected_is_named(many: Path, tmp_path: Path):
    process = start(many, tmp_path / "out", stderr=subprocess.PIPE)
    while not workers_of(process) and process.poll() is None:
        time.sleep(0.005)
    assert process.poll() is None, "the build ended before it had started a worker"
    killed_worker_is_named(process)


def test_nothing_outlives_a_build_that_was_killed_alone(many: Path, tmp_path: Path):
    psutil = pytest.importorskip("psutil")
    process = start(many, tmp_path / "out")
    wait_for("out/_staging/prepared/*.npz", 1, tmp_path, process)
    assert process.poll() is None, "the build ended before it had prepared a chunk"
    others = psutil.Process(process.pid).children(recursive=True)
    assert len(others) == 3  # two workers, and what forked them
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(others, timeout=60)
    assert not alive
