"""The benchmarks' arithmetic, and a small run of each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("psutil")

from benchmarks import build_throughput, deal_scale
from benchmarks.build_throughput import Run, summarise
from tests.conftest import read_table


def test_speeds_are_of_median_rounds_and_memory_of_the_worst():
    runs = {
        "pool": [Run(elapsed_s=each, peak_bytes=10**8) for each in (5.0, 1.0, 2.0)],
        "build": [Run(elapsed_s=each, peak_bytes=round(each * 10**8)) for each in (4.0, 9.0, 3.0)],
        "empty job": [Run(elapsed_s=1.5, peak_bytes=10**9)],
    }
    assert summarise(runs, images=100) == {
        "pool, images/s": 50.0,
        "build, images/s": 25.0,
        "empty Beam job, s": 1.5,
        "build / pool": 0.5,
        "build less empty job / pool": 0.8,
        "pool, peak MB": 100.0,
        "build, peak MB": 900.0,
    }


def test_memory_of_children_is_seen():
    code = "import sys; block = bytearray(200_000_000); print('up', flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout
    assert child.stdout.readline() == b"up\n"
    before = build_throughput.children_bytes()
    child.communicate()
    assert before > 200_000_000 > build_throughput.children_bytes()


def test_build_throughput_runs(table: Path, tmp_path: Path, capsys):
    figures = tmp_path / "figures.json"
    arguments = [str(table), "--rounds=1", "--workers=1", "--json", str(figures)]
    assert build_throughput.main(arguments) == 0
    assert f"{len(read_table(table))} images, 1 processes" in capsys.readouterr().out
    written = json.loads(figures.read_text())
    assert set(written["runs"]) == {"pool", "build", "empty job"}
    assert written["figures"]["build / pool"] > 0


def test_deal_scale_runs(capfd):
    assert deal_scale.main(["--rows=3000", "--layouts=50", "--files=2", "--workers=1"]) == 0
    printed = capfd.readouterr().out
    assert "inputs         3,000" in printed
    assert "3,000 rows, 50 layouts, 1 processes" in printed
