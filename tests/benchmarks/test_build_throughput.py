"""The benchmarks' arithmetic, and a small run of each."""

import json
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("apache_beam")
pytest.importorskip("psutil")

from benchmarks import build_throughput, deal_scale
from benchmarks.build_throughput import Run, summarize
from tests.support.receipts import read_table


def test_speeds_are_of_median_rounds_and_memory_of_the_worst():
    runs = {
        "pool": [Run(elapsed_s=each, peak_bytes=10**8) for each in (5.0, 1.0, 2.0)],
        "build": [Run(elapsed_s=each, peak_bytes=round(each * 10**8)) for each in (4.0, 9.0, 3.0)],
        "empty job": [Run(elapsed_s=1.5, peak_bytes=10**9)],
    }
    assert summarize(runs, images=100) == {
        "pool, images/s": 50.0,
        "build, images/s": 25.0,
        "empty Beam job, s": 1.5,
        "build / pool": 0.5,
        "build less empty job / pool": 0.8,
        "pool, peak MB": 100.0,
        "build, peak MB": 900.0,
    }


def test_the_pool_keeps_what_need_not_change(tmp_path: Path):
    """The pool works as the build does, so that both do the same work."""
    exif = Image.Exif()
    exif[build_throughput.ORIENTATION] = 6
    small = Image.new("RGB", (80, 60), "red")
    large = Image.new("RGB", (2048, 1024))
    small.save(tmp_path / "0.jpg")
    small.convert("L").save(tmp_path / "1.jpg")
    small.save(tmp_path / "2.jpg", exif=exif)
    small.save(tmp_path / "3.png")
    large.save(tmp_path / "4.jpg")
    sources = sorted(tmp_path.iterdir())
    build_throughput.run_pool(sources, tmp_path / "pool", workers=1, max_side=1024)
    written = sorted((tmp_path / "pool").iterdir())
    kept = [
        one.read_bytes() == other.read_bytes() for one, other in zip(sources, written, strict=True)
    ]
    assert kept == [True, True, False, False, False]
    sizes = [Image.open(path).size for path in written]
    assert sizes == [(80, 60), (80, 60), (60, 80), (80, 60), (1024, 512)]
    kept = [path.read_bytes() for path in written[:2]]
    build_throughput.run_pool(sources, tmp_path / "pool", workers=1, max_side=1024, encode_all=True)
    for path, before in zip(written, kept, strict=False):
        assert path.read_bytes() != before


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
