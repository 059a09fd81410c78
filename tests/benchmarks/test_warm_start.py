"""The warm start beside the cold one: its arithmetic, and a small run."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("tensorflow")

from benchmarks import warm_start
from pipeline.evaluation.evaluator import Evaluation
from tests.support.receipts import write_receipts


def test_the_first_step_that_reaches_an_accuracy():
    run = warm_start.Run(trainer=None, first=None, accuracies={0: 0.1, 5: 0.6, 10: 0.5, 15: 0.7})
    assert [run.steps_to(accuracy) for accuracy in (0.1, 0.5, 0.7, 0.9)] == [0, 5, 15, None]


def test_accuracy_of_the_old_layouts():
    evaluation = Evaluation(
        averages={},
        by_layout={"accuracy": np.array([0.5, np.nan, 1.0, 0.0])},
        counted={"accuracy": np.array([4.0, 0.0, 2.0, 10.0])},
        records=np.array([4.0, 0.0, 2.0, 10.0]),
        confusion=None,
    )
    assert warm_start.accuracy_of(evaluation, 3) == pytest.approx(4 / 6)


@pytest.mark.slow
def test_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_receipts(tmp_path / "receipts", {f"layout-{number}": 4 for number in range(8)})
    options = ["--steps=4", "--evaluate-every=2", "--global-batch-size=8", "--size=32"]
    command = [str(tmp_path / "receipts"), *options, "--width=8", "--units=8"]
    assert warm_start.main(command) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "began with the old run: 6 of 6 variables taken"
    assert "7 of 8 values taken" in printed[1]
    assert printed[2] == "7 old layouts of 8"
    assert printed[3].startswith("accuracy on the old ones ")
    assert len(printed) == 6


def test_without_receipts(tmp_path: Path):
    with pytest.raises(SystemExit, match=r"receipts\.jsonl does not exist: draw receipts"):
        warm_start.main([str(tmp_path)])
