"""A small run of the benchmark of the build's scale."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("apache_beam")

from benchmarks import build_scale
from benchmarks.build_scale import STAGES, Case


@pytest.mark.parametrize("case", [("3000", "50", "0"), ("500", "500", "0"), ("2000", "30", "700")])
def test_it_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    case: tuple[str, str, str],
):
    monkeypatch.setattr(build_scale, "in_new_process", lambda function, case: function(case))
    figures = tmp_path / "figures.json"
    rows, layouts, groups = case
    arguments = ["--rows", rows, "--layouts", layouts, "--groups", groups, "--json", str(figures)]
    assert build_scale.main(arguments) == 0
    assert capsys.readouterr().out.startswith(f"{int(rows):,} rows, {int(layouts):,} layouts, ")
    written = json.loads(figures.read_text())
    assert [each["stage"] for each in written] == [stage.__name__ for stage in STAGES]
    assert all(each["peak MB"] >= each["before MB"] > 0 and each["CPU s"] >= 0 for each in written)


def test_the_buckets_hold_every_record_once():
    case = Case(rows=3_000, layouts=40)
    counts = np.zeros(40, np.int64)
    for bucket in case.bucket_counts():
        np.add.at(counts, bucket.layout, bucket.count)
    assert counts.sum() == 3_000
    assert counts.tolist() == np.diff(case.layout_ends(), prepend=0).tolist()
    assert counts.min() >= 1
    assert case.plan().counts.sum(axis=1).tolist() == counts.tolist()


def test_more_layouts_than_rows(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        build_scale.main(["--rows", "5", "--layouts", "6"])
    assert "5 rows can't have 6 layouts" in capsys.readouterr().err
