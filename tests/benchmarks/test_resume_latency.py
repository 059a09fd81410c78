"""The time to the first batch: its arithmetic, and a small run."""

import json
from pathlib import Path

import pytest

pytest.importorskip("psutil")
pytest.importorskip("tensorflow")

from benchmarks import resume_latency
from benchmarks.harness.timing import Round
from benchmarks.resume_latency import latency_rows
from tests.support.dataset_factory import write_dataset


def rounds(*times_s: float) -> list[Round]:
    return [
        Round(first_batch_s=each, images_per_s=1.0, cpu_ms_per_image=1.0, peak_mb=1.0)
        for each in times_s
    ]


def test_ratios_are_of_medians():
    rows = latency_rows({"0": rounds(2.0, 9.0, 1.0), "1,000": rounds(3.0, 2.5, 3.0)})
    assert [row["first batch s"] for row in rows] == [2.0, 3.0]
    assert [row["ratio"] for row in rows] == [1.0, 1.5]
    assert [(row["lowest"], row["highest"]) for row in rows] == [(1.0, 9.0), (2.5, 3.0)]


@pytest.mark.usefixtures("in_this_process")
def test_it_runs(tmp_path: Path):
    directory = write_dataset(tmp_path / "receipts")
    figures = tmp_path / "figures.json"
    arguments = ["--global-batch-size=8", "--rounds=1", "--steps", "100000", "--json", str(figures)]
    assert resume_latency.main([str(directory), *arguments]) == 0
    results = json.loads(figures.read_text())["results"]
    assert [row["start step"] for row in results] == ["0", "100,000"]
    assert all(row["first batch s"] > 0 for row in results)
