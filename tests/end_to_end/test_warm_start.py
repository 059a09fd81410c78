"""Runs that begin with the weights of another one: under every strategy, killed and resumed."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from pipeline.train import main
from tests.end_to_end.test_train import TASK, assert_equal_weights, command, finish, losses
from tests.support.processes import processes

STEPS = ("--steps=3", "--steps-per-call=1", "--schedule=constant")
CLUSTERS = {
    "two replicas": {"worker": [2]},
    "two workers": {"worker": [1, 1]},
    "parameter server": {"chief": [1], "worker": [1], "ps": [1]},
}


@pytest.fixture(scope="module")
def old(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("old") / "run"
    assert main([str(directory), f"--run-dir={run_dir}", *TASK, "--steps=60"]) == 0
    return run_dir


@pytest.fixture(scope="module")
def warm(old: Path, directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process that began with the old one."""
    run_dir = tmp_path_factory.mktemp("warm") / "run"
    assert main([str(directory), f"--run-dir={run_dir}", f"--init-from={old}", *TASK, *STEPS]) == 0
    return run_dir


def test_a_warm_start_begins_with_a_lower_loss(warm: Path, directory: Path, tmp_path: Path):
    assert main([str(directory), f"--run-dir={tmp_path / 'cold'}", *TASK, *STEPS]) == 0
    cold = losses(tmp_path / "cold")
    assert len(cold) == len(losses(warm)) == 3
    assert losses(warm)[0] < cold[0]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_strategy_begins_with_the_same_weights(
    old: Path, warm: Path, directory: Path, tmp_path: Path, cluster: str
):
    run_dir = tmp_path / "run"
    jobs = {
        kind: [
            command(devices, directory, run_dir, *STEPS, f"--init-from={old}")
            for devices in numbers
        ]
        for kind, numbers in CLUSTERS[cluster].items()
    }
    with processes(tmp_path / "processes", jobs) as started:
        finish(started)
        words = [each.errors() for each in started]
    np.testing.assert_allclose(losses(run_dir)[0], losses(warm)[0], rtol=1e-4)
    assert [f"began with {old}: 2 of 2 variables taken" in each for each in words] == [
        True,
        *[False] * (len(words) - 1),
    ]


def test_a_run_resumes_from_its_own_steps(
    old: Path, warm: Path, directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    resumed = tmp_path / "run"
    again = [str(directory), f"--run-dir={resumed}", *TASK, *STEPS[1:]]
    assert main([*again, "--steps=1", f"--init-from={old}"]) == 0
    capsys.readouterr()
    assert main([*again, "--steps=2", f"--init-from={old}"]) == 0
    assert "init-from" not in capsys.readouterr().err
    assert main([*again, "--steps=3", "--init-from=elsewhere"]) == 0
    assert (
        "--init-from elsewhere is left aside, as the run goes on from its step 2: to begin anew, "
        "choose another run folder" in capsys.readouterr().err
    )
    assert main([*again, "--steps=3"]) == 0
    assert json.loads((resumed / "options.json").read_text())["init_from"] == str(old)
    assert_equal_weights(warm, resumed)


@pytest.mark.parametrize("path", ["nowhere", "."])
def test_nothing_to_begin_with_is_an_error(
    directory: Path, tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]
):
    source = tmp_path / path
    with pytest.raises(SystemExit) as ended:
        main([str(directory), f"--run-dir={tmp_path / 'run'}", *TASK, f"--init-from={source}"])
    assert ended.value.code == 2
    assert f"{source} is neither the folder of a training run" in capsys.readouterr().err
    assert not (tmp_path / "run" / "options.json").exists()
