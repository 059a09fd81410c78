"""The scaling of searches: its arithmetic, and a small run."""

import json
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from benchmarks import search_scaling
from benchmarks.search_scaling import Simulation, Timing, scaling_rows


def test_ratios_are_to_the_first_number_of_workers():
    simulation = Simulation(trials=39, steps=10, step_s=0.4)
    one, many = scaling_rows({1: Timing(2.0, 160.0), 13: Timing(7.0, 20.0)}, simulation)
    assert list(one.values()) == [1, 2.0, 160.0, 1.0, 1.0, 1.0]
    assert list(many.values()) == [13, 7.0, 20.0, 8.0, 6.0, 13.0]
    _, ten = scaling_rows({1: Timing(1.0, 1.0), 10: Timing(1.0, 1.0)}, simulation)
    assert ten["perfect"] == 9.75  # 39 and 4 rounds


def test_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    options = ["--workers", "2", "--trials=3", "--steps=2", "--step-s=0.01"]
    assert search_scaling.main([*options, f"--json={tmp_path / 'out.json'}"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[:2] == ["workers", "start"]
    written = json.loads((tmp_path / "out.json").read_text())
    assert [row["workers"] for row in written["results"]] == [2]


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--trials=0", "--trials must be at least 1, got 0"),
        ("--step-s=0", "--step-s must be above 0, got 0.0"),
        ("--workers=0", "--workers must be at least 1, got 0"),
    ],
)
def test_bad_options(option: str, sentence: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        search_scaling.main([option])
    assert sentence in capsys.readouterr().err
