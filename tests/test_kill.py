"""A build killed at any moment resumes, and ends with the bytes of one that was not."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from schemas.manifest import COMPLETED
from tests.conftest import contents, write_receipts

OPTIONS = ("--shards=3", "--max-side=64", "--workers=2", "--quiet")
# Each kill comes a random moment after so many files of a kind are there.
MOMENTS = [
    ("*.staging", 0),
    ("*.staging/rows/*", 1),
    ("*.staging/prepared/*.npz", 1),
    ("*.staging/prepared/*.npz", 20),
    ("*.staging/prepared/*.npz", 40),
    ("*.staging/prepared/*.npz", 64),
    ("*.staging/plan.json", 1),
    ("*.staging/finished/receipts-*", 1),
    ("*.staging/finished/receipts-*", 6),
    ("*/receipts-*", 1),
]


def command(table: Path, output: Path) -> list[str]:
    build = [sys.executable, "-m", "beam_jobs.build"]
    return [*build, "--input", str(table), "--output", str(output), *OPTIONS]


def run(table: Path, output: Path) -> None:
    done = subprocess.run(command(table, output), check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]


def start(table: Path, output: Path, *options: str) -> subprocess.Popen:
    return subprocess.Popen(
        [*command(table, output), *options],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill(process: subprocess.Popen) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_for(pattern: str, count: int, folder: Path, process: subprocess.Popen) -> None:
    """Waits until so many files match, or the process has ended."""
    while len(list(folder.glob(pattern))) < count and process.poll() is None:
        time.sleep(0.005)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_receipts(
        tmp_path_factory.mktemp("many"), {"a": 200, "b": 90, "c": 9, "d": 1}, first=1000
    )


def test_killed_builds_resume(many: Path, tmp_path: Path):
    run(many, tmp_path / "whole")
    expected = contents(tmp_path / "whole")
    rng = random.Random(0)
    stages = set()
    for moment, (pattern, count) in enumerate(MOMENTS):
        folder = tmp_path / f"killed-{moment}"
        folder.mkdir()
        output, staging = folder / "out", folder / "out.staging"
        process = start(many, output)
        wait_for(pattern, count, folder, process)
        time.sleep(rng.random() / 20)
        kill(process)
        prepared = len(list(staging.glob("prepared/*.npz")))
        finished = len(list(staging.glob("finished/receipts-*")))
        published = (output / COMPLETED).exists()
        stages.add((prepared > 0, finished > 0, published))
        if not published or any(path.is_file() for path in staging.rglob("*")):
            run(many, output)
        elif staging.exists():  # only the folders were left
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
    wait_for("out.staging/prepared/*.npz", 1, tmp_path, process)
    assert process.poll() is None, "the build ended before it had prepared a chunk"
    kill(process)
    assert contents(output) == before
    subprocess.run([*command(many, output), "--overwrite"], check=True, capture_output=True)
    assert contents(output) != before
    assert not (tmp_path / "out.staging").exists()
