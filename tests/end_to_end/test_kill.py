"""A build killed at any moment resumes, and ends with the bytes of one that was not."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from schemas.file_names import COMPLETED
from tests.support.forked import ForkedProgram
from tests.support.kills import matches
from tests.support.receipts import contents, write_receipts

OPTIONS = ("--shards=3", "--max-side=64", "--workers=2", "--quiet")
TIME_LIMIT_S = 60
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


def arguments(table: Path, output: Path) -> list[str]:
    return ["beam_jobs.build", "--input", str(table), "--output", str(output), *OPTIONS]


def run(table: Path, output: Path, *options: str) -> tuple[int, str]:
    """Runs a build until it ends; returns its exit status and messages."""
    errors = output.with_suffix(".errors")
    errors.unlink(missing_ok=True)
    status = ForkedProgram([*arguments(table, output), *options], errors=errors).wait(TIME_LIMIT_S)
    return status, errors.read_text()


def start(table: Path, output: Path, *options: str) -> ForkedProgram:
    """Starts a build, whose messages go to a file beside its output."""
    errors = output.with_suffix(".errors")
    return ForkedProgram([*arguments(table, output), *options], errors=errors, has_session=True)


def messages_of(process: ForkedProgram, output: Path) -> str:
    """The messages of a build that ends by itself."""
    try:
        process.wait(TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill_session()
        raise
    return output.with_suffix(".errors").read_text()


def wait_for(pattern: str, count: int, folder: Path, process: ForkedProgram) -> None:
    """Waits until so many files match, or the process has ended."""
    while len(matches(folder, pattern)) < count and process.poll() is None:
        time.sleep(0.005)


def workers_of(process: ForkedProgram) -> list[Any]:
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
    assert run(many, tmp_path / "whole")[0] == 0
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
        process.kill_session()
        prepared = len(list(staging.glob("prepared/*.npz")))
        finished = len(list(staging.glob("finished-*/receipts-*")))
        published = (output / COMPLETED).exists()
        stages.add((prepared > 0, finished > 0, published))
        if not published or (staging / "publishing").exists():
            assert build(many, output, *OPTIONS, "--workers=1") == 0  # which starts no process
        elif staging.exists():  # the marker and empty folders were left
            refused, _ = run(many, output)
            assert refused == 2
        assert contents(output) == expected
        assert not staging.exists()
    assert {(False, False, False), (True, False, False), (True, True, False)} <= stages


def test_killed_replacement_leaves_the_old_dataset(many: Path, tmp_path: Path):
    small = write_receipts(tmp_path / "small", {"x": 5})
    output = tmp_path / "out"
    assert run(small, output)[0] == 0
    before = contents(output)
    process = start(many, output, "--overwrite")
    wait_for("out/_staging/prepared/*.npz", 1, tmp_path, process)
    assert process.poll() is None, "the build ended before it had prepared a chunk"
    process.kill_session()
    left = contents(output)
    assert {name: left[name] for name in left if not name.startswith("_staging/")} == before
    assert run(many, output, "--overwrite")[0] == 0
    assert contents(output) != before
    assert not (output / "_staging").exists()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_build_says_how_to_resume(
    many: Path, tmp_path: Path, number: signal.Signals, workers: int
):
    options = (f"--workers={workers}",)
    process = start(many, tmp_path / "out", *options)
    wait_for("out/_staging/prepared/*.npz", 1, tmp_path, process)
    assert process.poll() is None, "the build ended before it had prepared a chunk"
    os.killpg(process.pid, number)  # as from a terminal: to the workers, too
    error = messages_of(process, tmp_path / "out")
    assert error == f"stopped by {number.name}; the same command resumes where it stopped\n"
    assert process.poll() == 128 + number
    assert not (tmp_path / "out" / COMPLETED).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_build_stopped_before_its_workers_have_connected_ends(
    many: Path, tmp_path: Path, number: signal.Signals
):
    process = start(many, tmp_path / "out")
    while not workers_of(process) and process.poll() is None:
        time.sleep(0.005)
    assert process.poll() is None, "the build ended before it had started a worker"
    process.send_signal(number)  # to this process alone, as a container's host does
    error = messages_of(process, tmp_path / "out")
    assert error == f"stopped by {number.name}; the same command resumes where it stopped\n"
    assert process.poll() == 128 + number


def killed_worker_is_named(process: ForkedProgram, tmp_path: Path) -> None:
    """Kills a worker of a build, and awaits the build's end."""
    workers_of(process)[0].kill()
    error = messages_of(process, tmp_path / "out")
    assert error.startswith("error: a worker process was killed, probably for lack of memory")
    assert "Traceback" not in error
    assert process.poll() == 1


def test_a_killed_worker_is_named(many: Path, tmp_path: Path):
    process = start(many, tmp_path / "out")
    wait_for("out/_staging/prepared/*.npz", 1, tmp_path, process)
    assert process.poll() is None, "the build ended before it had prepared a chunk"
    killed_worker_is_named(process, tmp_path)


def test_a_worker_killed_before_it_has_connected_is_named(many: Path, tmp_path: Path):
    process = start(many, tmp_path / "out")
    while not workers_of(process) and process.poll() is None:
        time.sleep(0.005)
    assert process.poll() is None, "the build ended before it had started a worker"
    killed_worker_is_named(process, tmp_path)


def test_nothing_outlives_a_build_that_was_killed_alone(many: Path, tmp_path: Path):
    psutil = pytest.importorskip("psutil")
    process = start(many, tmp_path / "out")
    wait_for("out/_staging/prepared/*.npz", 1, tmp_path, process)
    assert process.poll() is None, "the build ended before it had prepared a chunk"
    others = psutil.Process(process.pid).children(recursive=True)
    assert len(others) == 3  # two workers, and what forked them
    process.kill()
    process.wait(TIME_LIMIT_S)
    _, alive = psutil.wait_procs(others, timeout=60)
    assert not alive
