"""Backup workers: the simulation, and one small run of the benchmark."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("psutil")
pytest.importorskip("tensorflow")

from benchmarks import backup_workers
from benchmarks.harness import local_cluster
from benchmarks.harness.stragglers import Delays, simulate_step_s
from tests.support.dataset_factory import write_dataset
from tests.support.forked import popen


def simulated(backups: int, delays: Delays) -> float:
    rng = np.random.default_rng(0)
    return simulate_step_s(4, backups, lambda: delays.draw(rng), steps=20_000)


def test_steps_without_delays_take_their_time():
    delays = Delays(step_s=0.5, probability=0)
    assert [simulated(backups, delays) for backups in (0, 1, 4)] == pytest.approx([0.5] * 3)


def test_in_lock_step_one_late_gradient_delays_a_step():
    expected = 0.98**4 + (1 - 0.98**4) * 10
    assert simulated(0, Delays(step_s=1)) == pytest.approx(expected, rel=0.02)


def test_each_backup_worker_helps():
    times = [simulated(backups, Delays(step_s=1)) for backups in range(4)]
    assert times == sorted(times, reverse=True)
    assert times[2] < 1.15


def test_a_step_takes_the_gradients_that_come_first():
    """The third worker's first gradient comes in the second step, too late."""
    seconds = iter([1, 1, 1.5, 1, 1, 9, 9, 9])
    assert simulate_step_s(2, 1, lambda: next(seconds), steps=2) == pytest.approx(1.0)


@pytest.mark.parametrize("options", [{"step_s": 0}, {"probability": 1.1}, {"factor": 0.5}])
def test_delays_that_can_not_be(options: dict[str, float]):
    [name] = options
    with pytest.raises(ValueError, match=f"{name} must be"):
        Delays(**options)


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--workers=0", "--workers must be at least 1, got 0"),
        ("--backups=-1", "--backups must be at least 0, got -1"),
        ("--factor=0.5", "--factor must be at least 1, got 0.5"),
    ],
)
def test_errors(option: str, sentence: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        backup_workers.main(["nowhere", option])
    assert sentence in capsys.readouterr().err


def test_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(local_cluster.subprocess, "Popen", popen(tmp_path))
    directory = write_dataset(tmp_path / "receipts")
    written = tmp_path / "figures.json"
    arguments = ["--workers=1", "--backups=1", "--steps=20", "--global-batch-size=8"]
    arguments += ["--task=tests.support.tiny_task:TinyTask", "--evaluation-split=train"]
    arguments += ["--step-s=0.05", "--probability=0.2", "--factor=2", "--json", str(written)]
    assert backup_workers.main([str(directory), *arguments]) == 0
    plain, backed = json.loads(written.read_text())["results"]
    assert [plain["backup workers"], backed["backup workers"]] == ["asynchronous", "1"]
    assert plain["s a step"] >= 0.05
    assert backed["s a step"] >= 0.05
    assert plain["simulated"] == pytest.approx(0.06)
    assert backed["loss of no backup"] == 1
    assert "asynchronous" in capsys.readouterr().out
