"""A run under ParameterServerStrategy, in which every kind of process is lost once."""

import json
import signal
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.distribution.stop_request import STOPPED
from pipeline.records.info import load_info
from pipeline.training.checkpoints import Checkpoints
from pipeline.training.options import TrainOptions
from pipeline.training.trainer import Trainer
from tests.support.dataset_factory import LAYOUTS
from tests.support.processes import Process, processes, wait_until
from tests.support.tiny_task import TinyTask

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


CHIEF, FIRST_WORKER, SECOND_WORKER, SERVER = range(4)


@dataclass(frozen=True, kw_only=True)
class Story:
    """A run, and the results of the chief's lives.

    Attributes:
      folder: where output of the processes goes.
      started: the chief, two workers and a parameter server.
      stops: of the chief's lives but the last, its exit status, step and words.
      resumed: the first step that each of its lives but the first told of.
    """

    folder: Path
    directory: Path
    run_dir: Path
    started: list[Process]
    stops: list[tuple[int, int, str]] = field(default_factory=list)
    resumed: list[int] = field(default_factory=list)

    def lines(self) -> list[dict[str, float]]:
        """Lines of figures; one of a life with other options tells of these first."""
        path = self.run_dir / "log.jsonl"
        complete = path.read_text().rpartition("\n")[0] if path.exists() else ""
        lines = map(json.loads, complete.splitlines())
        return [line for line in lines if line.keys().isdisjoint(("changed", "time"))]

    def lose_workers(self) -> None:
        """Kills a worker and ends the other; training goes on with the one that is there."""
        self._train(20)
        self.started[FIRST_WORKER].kill()
        self._train(50, lost=FIRST_WORKER)
        self._serve_again(FIRST_WORKER)
        self._train(200)
        assert self.started[SECOND_WORKER].terminate() == -signal.SIGTERM
        self._train(50, lost=SECOND_WORKER)  # only the first, started again, can have done it
        self._serve_again(SECOND_WORKER)

    def stop_chief(self) -> None:
        """Tells the chief to stop, and starts it again."""
        self._note_stop(self.started[CHIEF].terminate())
        before = len(self.lines())
        self._start(CHIEF)
        self._train(60)
        self.resumed.append(int(self.lines()[before]["step"]))

    def lose_server(self) -> None:
        """Kills the parameter server, which ends the chief; both run again until the end."""
        self.started[SERVER].kill()
        self._note_stop(self.started[CHIEF].wait())
        before = len(self.lines())
        self._serve_again(SERVER)
        self._start(CHIEF, f"--steps={self.stops[-1][1] + 50}")
        wait_until(lambda: all(each.has_ended() for each in self.started), self.started)
        self.resumed.append(int(self.lines()[before]["step"]))

    def _start(self, number: int, *more: str) -> Process:
        life = len(list(self.folder.glob("life-*")))
        self.started[number] = self.started[number].again(self.folder / f"life-{life}", *more)
        return self.started[number]

    def _serve_again(self, number: int) -> None:
        server = self._start(number)
        wait_until(lambda: "serves at" in server.errors(), [server])

    def _train(self, steps: int, lost: int | None = None) -> None:
        """Waits for further steps of the processes but one."""
        there = [each for number, each in enumerate(self.started) if number != lost]
        before = len(self.lines())
        wait_until(lambda: len(self.lines()) >= before + steps // CALL, there)

    def _note_stop(self, status: int) -> None:
        step = int(self.lines()[-1]["step"])
        self.stops.append((status, step, self.started[CHIEF].errors()))


@pytest.fixture(scope="module")
def story(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A chief, two workers and a parameter server; all that is lost is started again."""
    folder = tmp_path_factory.mktemp("story")
    run_dir = folder / "run"
    options = [str(directory), f"--run-dir={run_dir}", *OPTIONS]
    command = ["tests.support.train_worker", "1", *options, "--strategy=parameter_server"]
    endless = [*command, "--steps=1000000"]
    commands = {"chief": [endless], "worker": [command] * 2, "ps": [command]}
    with processes(folder / "first", commands) as started:
        story = Story(folder=folder, directory=directory, run_dir=run_dir, started=started)
        story.lose_workers()
        story.stop_chief()
        story.lose_server()
    assert not list(run_dir.glob("*.over"))
    return story


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
    steps = [line["step"] for line in story.lines() if "loss" in line]
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
    assert story.lines()[-1]["validation/loss"] < 0.95 * untrained


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
    assert evaluation.records.sum() == sum(LAYOUTS.values())
    last = story.lines()[-1]
    assert last["step"] == trainer.step
    assert evaluation.averages.keys() == {"loss", "accuracy"}
    for name, value in evaluation.averages.items():
        assert value == pytest.approx(last[f"validation/{name}"], rel=1e-5)


def test_a_server_that_was_started_again_while_nobody_looked(directory: Path, tmp_path: Path):
    run_dir = tmp_path / "run"
    command = ["tests.support.train_worker", "1", str(directory), f"--run-dir={run_dir}", *OPTIONS]
    command += ["--strategy=parameter_server", "--steps=1000000"]
    commands = {"chief": [command], "worker": [command], "ps": [command]}
    with processes(tmp_path / "output", commands) as started:
        chief, _, server = started
        wait_until((run_dir / "log.jsonl").exists, started)
        chief.send_signal(signal.SIGSTOP)
        server.kill()
        started.append(again := server.again(tmp_path / "again"))
        wait_until(lambda: "serves at" in again.errors(), [again])
        chief.send_signal(signal.SIGCONT)
        assert chief.wait() == STOPPED
        words = chief.errors()
    assert "a parameter server was lost" in words
    assert "Traceback" not in words
