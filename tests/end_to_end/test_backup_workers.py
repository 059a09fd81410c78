"""Runs with backup workers, one of which is lost."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.records.info import load_info
from pipeline.tasks.base import Task
from pipeline.training.checkpoints import Checkpoints
from pipeline.training.options import TrainOptions
from pipeline.training.trainer import Trainer
from tests.support.processes import Process, processes, run_python, wait_until
from tests.support.tiny_task import PenalizedTask, TinyTask

CALL = 10
SEED = 1  # its untrained model loses 3, where that of seed 0 loses as little as a trained one
OPTIONS = (
    "--task=tests.support.tiny_task:TinyTask",
    "--quiet",
    "--evaluation-split=train",
    "--global-batch-size=8",
    f"--steps-per-call={CALL}",
    "--schedule=constant",
    f"--seed={SEED}",
    "--weight-decay=0.001",
    "--clip-norm=1",
    "--accumulate=2",
)


def command(directory: Path, run_dir: Path, *options: str) -> list[str]:
    data = (str(directory), f"--run-dir={run_dir}")
    return ["tests.support.train_worker", "1", *data, *OPTIONS, *options]


def lines(run_dir: Path, figure: str = "loss") -> list[dict[str, float]]:
    path = run_dir / "log.jsonl"
    complete = path.read_text().rpartition("\n")[0] if path.exists() else ""
    parsed = map(json.loads, complete.splitlines())
    return [line for line in parsed if figure in line]


def wait_for_end(started: list[Process]) -> None:
    wait_until(lambda: all(each.has_ended() for each in started), started)


def trainer(directory: Path, task: Task) -> Trainer:
    options = TrainOptions(global_batch_size=8, schedule="constant", seed=SEED)
    return Trainer(task, tf.distribute.get_strategy(), load_info(directory), options)


def weights(directory: Path, run_dir: Path) -> list[np.ndarray]:
    restored = trainer(directory, PenalizedTask())
    checkpoints = Checkpoints(
        str(run_dir / "checkpoints"),
        model=restored.model,
        optimizer=restored.optimizer,
        identity=restored.identity(),
        keep=1,
    )
    assert checkpoints.restore()
    return [weight.numpy() for weight in restored.model.weights]


def test_a_killed_worker_costs_no_step(directory: Path, tmp_path: Path):
    run_dir = tmp_path / "run"
    own = command(directory, run_dir, "--strategy=parameter_server", "--backup-workers=1")
    commands = {"chief": [[*own, "--steps=150"]], "worker": [own] * 3, "ps": [own] * 2}
    with processes(tmp_path / "output", commands) as started:
        wait_until(lambda: len(lines(run_dir)) >= 3, started)
        lost = started.pop(1)
        assert len(lines(run_dir)) < 15
        lost.kill()
        wait_for_end(started)
        words = started[0].errors()
    assert "worker 0" in words
    assert "can't be told that the run is over" in words
    assert "Traceback" not in words
    logged, evaluated = lines(run_dir, "loss"), lines(run_dir, "validation/loss")
    assert [line["step"] for line in logged] == list(range(CALL, 151, CALL))
    assert sum(line["dropped_gradients"] for line in logged) > 0
    untrained = trainer(directory, TinyTask()).evaluate("train").averages["loss"]
    assert evaluated[-1]["validation/loss"] < 0.5 * untrained


@pytest.mark.parametrize("backups", [("--backup-workers=0",), ()], ids=["in step", "alone"])
def test_one_worker_learns_what_no_cluster_learns(
    directory: Path, tmp_path: Path, backups: tuple[str, ...]
):
    """The steps, too, are the same where nothing can be late."""
    steps = ("--steps=30", "--task=tests.support.tiny_task:PenalizedTask")
    alone, cluster = tmp_path / "alone", tmp_path / "cluster"
    run_python("-m", *command(directory, alone, *steps))
    own = command(directory, cluster, *steps, "--strategy=parameter_server", *backups)
    commands = {"chief": [own], "worker": [own], "ps": [own] * 2}
    with processes(tmp_path / "output", commands) as started:
        wait_for_end(started)
    for here, there in zip(lines(alone), lines(cluster), strict=True):
        assert here["loss"] == pytest.approx(there["loss"], rel=1e-4)
    if backups:
        assert [line["dropped_gradients"] for line in lines(cluster)] == [0, 0, 0]
    pairs = zip(weights(directory, alone), weights(directory, cluster), strict=True)
    for weight, same in pairs:
        np.testing.assert_allclose(weight, same, atol=1e-5)
