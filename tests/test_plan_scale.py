"""A small run of the benchmark of the plan's scale."""

import json
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from benchmarks import plan_scale


def test_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    figures = tmp_path / "figures.json"
    arguments = ["--records", "3000", "500", "--layouts=50", "--json", str(figures)]
    assert plan_scale.main(arguments) == 0
    assert "       3,000 records: deck s " in capsys.readouterr().out
    written = json.loads(figures.read_text())
    assert [each["records"] for each in written] == [3000, 500]
    assert all(each["peak MB"] > each["of that TensorFlow MB"] / 2 > 0 for each in written)
