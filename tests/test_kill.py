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
MOMENTS = 10


def command(table: Path, output: Path) -> list[str]:
    build = [sys.executable, "-m", "beam_jobs.build"]
    return [*build, "--input", str(table), "--output", str(output), *OPTIONS]


def run(table: Path, output: Path) -> float:
    """Runs a build to its end; returns its time in seconds."""
    started = time.monotonic()
    subprocess.run(command(table, output), check=True, capture_output=True)
    return time.monotonic() - started


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_receipts(
        tmp_path_factory.mktemp("many"), {"a": 200, "b": 90, "c": 9, "d": 1}, first=1000
    )


def test_killed_builds_resume(many: Path, tmp_path: Path):
    elapsed_s = run(many, tmp_path / "whole")
    expected = contents(tmp_path / "whole")
    rng = random.Random(0)
    stages = set()
    for moment in range(MOMENTS):
        output = tmp_path / f"killed-{moment}"
        staging = output.with_name(output.name + ".staging")
        # Moments are spread over the run, from its start to its very end.
        delay_s = elapsed_s * (moment + rng.random()) / MOMENTS
        process = subprocess.Popen(
            command(many, output),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(delay_s)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        prepared = len(list(staging.glob("prepared/*.npz")))
        finished = len(list(staging.glob("finished/receipts-*")))
        published = (output / COMPLETED).exists()
        stages.add((prepared > 0, finished > 0, published))
        if published and not staging.exists():
            assert contents(output) == expected
            continue
        run(many, output)
        assert contents(output) == expected
        assert not staging.exists()
    assert len(stages) > 1, f"all {MOMENTS} kills hit one stage of the build: {stages}"


def test_killed_replacement_leaves_the_old_dataset(many: Path, tmp_path: Path):
    small = write_receipts(tmp_path / "small", {"x": 5})
    output = tmp_path / "out"
    run(small, output)
    before = contents(output)
    process = subprocess.Popen(
        [*command(many, output), "--overwrite"],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    staging = tmp_path / "out.staging"
    while not list(staging.glob("prepared/*.npz")):
        assert process.poll() is None, "the build ended before it had prepared a chunk"
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert contents(output) == before
    subprocess.run([*command(many, output), "--overwrite"], check=True, capture_output=True)
    assert contents(output) != before
    assert not staging.exists()
