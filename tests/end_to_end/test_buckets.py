"""Runs whose images have several sizes: the same steps under any strategy."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from tests.support.dataset_factory import write_dataset
from tests.support.processes import processes, wait_until

OPTIONS = (
    "--task=tests.support.tiny_task:AnySizeTask",
    "--quiet",
    "--buckets=3",
    "--balance-alpha=0.5",
    "--global-batch-size=8",
    "--steps-per-call=1",
    "--schedule=constant",
    "--evaluation-split=train",
    "--model.size=64",
)
STEPS = 12


@pytest.fixture(scope="module")
def wide_and_long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 records in four layouts, of three ratios of height to width."""
    return write_dataset(
        tmp_path_factory.mktemp("buckets") / "receipts",
        counts={"alpha": 40, "beta": 18, "gamma": 5, "omega": 1},
        sizes=((60, 40), (90, 30), (60, 40), (40, 60)),
    )


def train(directory: Path, run_dir: Path, tasks: dict[str, list[int]], *options: str) -> None:
    """Runs a process for each number of devices of each type of task."""
    arguments = [str(directory), f"--run-dir={run_dir}", *OPTIONS, *options]
    commands = {
        kind: [["tests.support.train_worker", str(devices), *arguments] for devices in group]
        for kind, group in tasks.items()
    }
    output = run_dir.with_name(f"{run_dir.name}-{'-'.join(options)}")
    with processes(output, commands) as started:
        wait_until(lambda: all(each.has_ended() for each in started), started)


def logged(run_dir: Path, figure: str) -> list[float]:
    lines = map(json.loads, (run_dir / "log.jsonl").read_text().splitlines())
    return [line[figure] for line in lines if figure in line]


@pytest.fixture(scope="module")
def on_one_device(wide_and_long: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("one") / "run"
    train(wide_and_long, run_dir, {"worker": [1]}, f"--steps={STEPS}")
    return run_dir


@pytest.mark.parametrize(
    ("devices", "stops"),
    [([2], [STEPS]), ([1, 1], [5, STEPS])],
    ids=["mirrored", "multi-worker"],
)
def test_replicas_take_the_same_steps(
    wide_and_long: Path, on_one_device: Path, tmp_path: Path, devices: list[int], stops: list[int]
):
    """All of them have the same bucket; and a run that goes on has the next one."""
    run_dir = tmp_path / "run"
    for steps in stops:
        train(wide_and_long, run_dir, {"worker": devices}, f"--steps={steps}")
    losses = logged(run_dir, "loss")
    assert len(set(losses)) == STEPS
    np.testing.assert_allclose(losses, logged(on_one_device, "loss"), rtol=1e-4)
    evaluations = logged(run_dir, "validation/loss")
    assert evaluations[-1] == pytest.approx(logged(on_one_device, "validation/loss")[0], rel=1e-4)


@pytest.mark.parametrize("backups", [[], ["--backup-workers=1"]], ids=["asynchronous", "backup"])
def test_parameter_servers(wide_and_long: Path, tmp_path: Path, backups: list[str]):
    run_dir, tasks = tmp_path / "run", {"chief": [1], "worker": [1, 1], "ps": [1]}
    options = ("--strategy=parameter_server", f"--steps={STEPS}", *backups)
    train(wide_and_long, run_dir, tasks, *options)
    assert len(logged(run_dir, "loss")) == STEPS
    assert np.isfinite(logged(run_dir, "loss")).all()
    assert len(logged(run_dir, "validation/accuracy")) == 1
