"""A run under ParameterServerStrategy, in which every kind of process is lost once."""

import json
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.records.info import load_info
from pipeline.training.checkpoints import Checkpoints
from pipeline.training.loop import STOPPED
from pipeline.training.options import TrainOptions
from pipeline.training.trainer import Trainer
from tests.support.dataset_factory import write_dataset
from tests.support.processes import Process, processes, wait_until
from tests.support.tiny_task import TinyTask

COUNTS = {"alpha": 20, "beta": 9, "gamma": 2, "omega": 1}
CALL = 10  # steps that the log tells of at once
CHECKPOINT_EVERY = 50
OPTIONS = (
    "--task=tests.support.tiny_task:TinyTask",
    "--quiet",
    "--evaluation-split=train",
    "--global-batch-size=8",
    f"--steps-per-call={CALL}",
    f"--checkpoint-every={CHECKPOINT_EVERY}",
    "--schedule=constant",
    "--weight-decay=0.001",
    "--clip-norm=1",
    "--accumulate=2",
    "--model.dropout=0.1",
)


@dataclass(frozen=True, kw_only=True)
class Story:
    """Results of a run.

    Attributes:
      stops: of the chief's lives but the last, its exit status, step and words.
      resumed: the first step that each of its lives but the first told of.
    """

    directory: Path
    run_dir: Path
    stops: list[tuple[int, int, str]]
    resumed: list[int]
    lines: list[dict[str, float]]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A chief, two workers and a parameter server; all that is lost is started again."""
    folder = tmp_path_factory.mktemp("story")
    directory = write_dataset(folder / "receipts", counts=COUNTS)
    run_dir = folder / "run"
    options = [str(directory), f"--run-dir={run_dir}", *OPTIONS]
    command = ["tests.support.train_worker", "1", *options, "--strategy=parameter_server"]
    endless = [*command, "--steps=1000000"]
    lives = iter(folder / f"life-{number}" for number in range(100))
    with processes(
        folder / "first", {"chief": [endless], "worker": [command] * 2, "ps": [command]}
    ) as started:
        chief, *workers = range(3)
        lost_server = 3

        def start(number: int, *more: str) -> Process:
            started[number] = started[number].again(next(lives), *more)
            return started[number]

        def serve_again(number: int) -> None:
            server = start(number)
            wait_until(lambda: "serves at" in server.errors(), [server])

        def train(steps: int, lost: int | None = None) -> None:
            there = [each for number, each in enumerate(started) if number != lost]
            before = len(log(run_dir))
            wait_until(lambda: len(log(run_dir)) >= before + steps // CALL, there)

        train(20)
        started[workers[0]].kill()
        train(50, lost=workers[0])
        serve_again(workers[0])
        train(200)
        assert started[workers[1]].terminate() == -signal.SIGTERM
        train(50, lost=workers[1])  # only the worker that was started again can have done it
        serve_again(workers[1])
        stops, resumed = [], []

        def note(status: int) -> None:
            stops.append((status, int(log(run_dir)[-1]["step"]), started[chief].errors()))

        note(started[chief].terminate())
        before = len(log(run_dir))
        start(chief)
        train(60)
        resumed.append(int(log(run_dir)[before]["step"]))
        started[lost_server].kill()
        note(started[chief].wait())
        before = len(log(run_dir))
        serve_again(lost_server)
        start(chief, f"--steps={stops[-1][1] + 50}")
        wait_until(lambda: all(each.has_ended() for each in started), started)
        resumed.append(int(log(run_dir)[before]["step"]))
    assert not list(run_dir.glob("*.over"))
    return Story(
        directory=directory, run_dir=run_dir, stops=stops, resumed=resumed, lines=log(run_dir)
    )


def log(run_dir: Path) -> list[dict[str, float]]:
    """Lines of figures; one of a life with other options tells of these first."""
    path = run_dir / "log.jsonl"
    complete = path.read_text().rpartition("\n")[0] if path.exists() else ""
    lines = map(json.loads, complete.splitlines())
    return [line for line in lines if "changed" not in line]


def test_a_chief_that_is_told_to_stop_loses_nothing(story: Story):
    status, step, words = story.stops[0]
    assert status == STOPPED
    assert f"stopped at step {step:,}: the same command goes on" in words
    assert story.resumed[0] == step + CALL


def test_a_lost_parameter_server_takes_back_to_the_last_checkpoint(story: Story):
    status, step, words = story.stops[1]
    assert status == STOPPED
    assert "the same command goes on from the last checkpoint" in words
    assert "Traceback" not in words
    assert story.resumed[1] % CHECKPOINT_EVERY == CALL
    assert 0 <= step + CALL - story.resumed[1] <= CHECKPOINT_EVERY


def test_each_step_counts_once(story: Story):
    steps = [line["step"] for line in story.lines if "loss" in line]
    lost = steps.index(story.resumed[1], steps.index(story.stops[1][1]) + 1)
    assert np.diff(steps[:lost]).tolist() == [CALL] * (lost - 1)
    assert np.diff(steps[lost:]).tolist() == [CALL] * (len(steps) - lost - 1)
    assert steps[-1] == story.stops[1][1] + 50


def trainer_without_a_cluster(directory: Path) -> Trainer:
    options = TrainOptions(global_batch_size=8, schedule="constant")
    return Trainer(
        TinyTask(dropout=0.1), tf.distribute.get_strategy(), load_info(directory), options
    )


def test_the_model_learns(story: Story):
    """The order of updates is chance, so the margin is wide: the untrained model loses 1.2."""
    untrained = trainer_without_a_cluster(story.directory).evaluate("train").averages["loss"]
    assert story.lines[-1]["validation/loss"] < 0.95 * untrained


def test_evaluation_is_that_of_any_strategy(story: Story):
    """The weights of the last checkpoint, evaluated without a cluster."""
    trainer = trainer_without_a_cluster(story.directory)
    checkpoints = Checkpoints(
        str(story.run_dir / "checkpoints"),
        model=trainer.model,
        optimizer=trainer.optimizer,
        identity=trainer.identity(),
        keep=1,
    )
    assert checkpoints.restore()
    evaluation = trainer.evaluate("train")
    assert evaluation.records.sum() == sum(COUNTS.values())
    last = story.lines[-1]
    assert last["step"] == trainer.step
    assert evaluation.averages.keys() == {"loss", "accuracy"}
    for name, value in evaluation.averages.items():
        assert value == pytest.approx(last[f"validation/{name}"], rel=1e-5)
