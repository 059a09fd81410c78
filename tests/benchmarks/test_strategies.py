"""The side-by-side of strategies: its arithmetic, and a run of one of them."""

import json
import math
from pathlib import Path

import pytest

pytest.importorskip("psutil")
pytest.importorskip("tensorflow")

from benchmarks import strategies
from benchmarks.strategies import SETUPS, curve, figures
from pipeline.distribution.strategies import STRATEGIES
from tests.support.dataset_factory import write_dataset

LOG = [
    {"step": 10, "loss": 3.0, "images_per_s": 1.0},
    {"step": 20, "loss": 2.0, "images_per_s": 80.0},
    {"step": 20, "validation/loss": 9.0, "validation/accuracy": 0.1},
    {"step": 30, "loss": 1.0, "images_per_s": 40.0},
    {"step": 35, "loss": 0.5, "images_per_s": 20.0},
    {"step": 35, "validation/loss": 0.7, "validation/accuracy": 0.8, "validation/loss/macro": 2.0},
]


def test_seconds_are_those_of_training_steps():
    assert curve(LOG, 8) == [(1.0, 2.0), (3.0, 1.0), (5.0, 0.5)]


def test_figures_of_a_run():
    assert figures(LOG, 8, 1.0) == {
        "images/s": 40.0,
        "s to loss 1": 3.0,
        "loss": 0.5,
        "validation/loss": 0.7,
        "validation/accuracy": 0.8,
    }
    assert math.isnan(figures(LOG, 8, 0.1)["s to loss 0.1"])


def test_there_is_a_setup_of_each_strategy_that_runs_here():
    assert {each.strategy for each in SETUPS.values()} == set(STRATEGIES) - {"auto", "tpu"}


def test_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    directory = write_dataset(tmp_path / "receipts")
    written, plot = tmp_path / "figures.json", tmp_path / "plot.png"
    arguments = ["--setups", "mirrored-2", "--steps=30", "--global-batch-size=8", "--loss=100"]
    arguments += ["--task=tests.support.tiny_task:TinyTask", "--evaluation-split=train"]
    files = ["--json", str(written), "--plot", str(plot)]
    assert strategies.main([str(directory), *arguments, *files]) == 0
    [row] = json.loads(written.read_text())["results"]
    assert row["strategy"] == "mirrored-2"
    assert 0 <= row["s to loss 100"] < math.inf
    assert row["images/s"] > 0
    assert "mirrored-2" in capsys.readouterr().out
    assert plot.stat().st_size > 5000
