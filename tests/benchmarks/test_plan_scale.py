"""A small run of the benchmark of the plan's scale."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from benchmarks import plan_scale
from benchmarks.harness.timing import in_new_process


def test_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    figures = tmp_path / "figures.json"
    arguments = ["--records", "3000", "500", "--layouts=50", "--json", str(figures)]
    assert plan_scale.main(arguments) == 0
    assert "       3,000 records: table s " in capsys.readouterr().out
    written = json.loads(figures.read_text())
    assert [each["records"] for each in written] == [3000, 500]
    # So few records may fit into what TensorFlow's import took and gave back.
    assert all(each["peak MB"] >= each["of that TensorFlow MB"] > 0 for each in written)


def test_the_peak_is_not_that_of_the_process_that_started_this_one():
    ballast = np.ones(50_000_000)
    assert in_new_process(plan_scale.peak_mb) < plan_scale.peak_mb() - ballast.nbytes / 2e6
