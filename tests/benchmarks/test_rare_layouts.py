"""The benchmark of rare layouts: its arithmetic, and a small run."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("tensorflow")

from benchmarks.harness import timing
from benchmarks.rare_layouts.__main__ import main, trained
from benchmarks.rare_layouts.composition import longest_wait, steps_to_all
from benchmarks.rare_layouts.figures import Accuracy, Shots, accuracy_table, steps_to
from benchmarks.rare_layouts.model import StridedClassifier
from benchmarks.rare_layouts.runs import Run, Training
from benchmarks.rare_layouts.settings import SETTINGS

COUNTS = np.array([[2, 0, 1], [1, 1, 0], [0, 2, 0], [0, 0, 0], [1, 0, 0]])


def run(setting: str, seed: int, *accuracies: list[float]) -> Run:
    steps = range(10, 10 * len(accuracies) + 1, 10)
    return Run(setting=setting, seed=seed, accuracies=dict(zip(steps, accuracies, strict=True)))


def test_when_every_layout_has_come():
    assert steps_to_all(COUNTS) == 2
    assert steps_to_all(COUNTS[:1]) is None


def test_the_longest_wait_may_be_at_the_end():
    assert longest_wait(COUNTS) == 4
    assert longest_wait(COUNTS[:3]) == 2


def test_layouts_are_divided_as_in_the_literature():
    shots = Shots.of(np.array([101, 100, 20, 19]))
    assert shots.many.tolist() == [True, False, False, False]
    assert shots.medium.tolist() == [False, True, True, False]
    assert shots.few.tolist() == [False, False, False, True]


def test_means_and_deviations_in_percent():
    assert str(Accuracy.of([0.5, 0.7])) == "60.0 ± 14.1"
    assert str(Accuracy.of([0.25])) == "25.0 ± 0.0"


def test_a_table_of_runs():
    """The target is what the natural order ends with: 0.2 of the rare layout, on average."""
    rare = np.array([False, True])
    runs = {
        "dealt": [run("dealt", 0, [0.9, 0.3], [1.0, 0.1]), run("dealt", 1, [0.8, 0], [0.9, 0.3])],
        "alpha 0": [run("alpha 0", 0, [0.9, 0.5], [0.9, 0.6])],
    }
    assert steps_to(runs["dealt"][0], 0.4, rare) is None
    lines = accuracy_table(runs, np.array([200, 5]), natural="dealt")
    assert lines[0].startswith("1 layouts with more than 100 training records, 0 with 20 to 100")
    assert lines[2].split()[-4:] == ["dealt's", "accuracy", "of", "few"]
    assert " ".join(lines[3].split()) == "dealt 95.0 ± 7.1 20.0 ± 14.1 57.5 ± 3.5 10, 20"
    assert " ".join(lines[4].split()) == "alpha 0 90.0 ± 0.0 60.0 ± 0.0 75.0 ± 0.0 10"


def test_runs_that_a_file_has_are_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    trained_now = []

    def train(function: Any, name: str, setting: Any, training: Any, _: Any, seed: int) -> Run:
        trained_now.append((name, seed))
        return run(name, seed, [0.5, 0.25])

    monkeypatch.setattr(timing, "in_new_process", train)
    training = Training(
        task=StridedClassifier(),
        steps=10,
        global_batch_size=4,
        learning_rate=0.1,
        evaluate_every=10,
    )
    datasets: Any = (SimpleNamespace(digest="abc"), None)
    settings = {name: SETTINGS[name] for name in ("dealt", "alpha 0")}
    found = [
        trained(tmp_path / "runs", settings, training, datasets, seeds=seeds) for seeds in (1, 2, 2)
    ]
    assert trained_now == [("dealt", 0), ("alpha 0", 0), ("dealt", 1), ("alpha 0", 1)]
    assert (
        found[1]
        == found[2]
        == {name: [run(name, s, [0.5, 0.25]) for s in (0, 1)] for name in settings}
    )
    trained(tmp_path / "runs", settings, replace(training, steps=20), datasets, seeds=1)
    assert trained_now[4:] == [("dealt", 0), ("alpha 0", 0)]


@pytest.mark.usefixtures("in_this_process")
def test_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    command = [
        *(str(tmp_path / "work"), "--count=60", "--layouts=3", "--test-per-layout=2"),
        *("--size=32", "--width=8", "--steps=5", "--evaluate-every=4"),
        *("--global-batch-size=8", "--seeds=1", "--settings", "buffer", "new head"),
    ]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["batches", "steps", "to", "all"]
    assert [line.split("  ")[0] for line in lines[1:3]] == ["dealt", "buffer"]
    assert [line.split("  ")[0] for line in lines[-3:]] == ["dealt", "buffer", "new head"]
