"""Decoding of windows: all ways make the same pixels, and a small run."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("psutil")
pytest.importorskip("tensorflow")
pytest.importorskip("apache_beam")

from benchmarks import row_decoding
from benchmarks.row_decoding import WAYS, windows
from tests.support.dataset_factory import write_dataset


@pytest.fixture(scope="module")
def directory(table: Path, build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """44 receipts with restart rows."""
    output = tmp_path_factory.mktemp("rows") / "receipts"
    assert build(table, output, "--restart-rows", "--shards=1") == 0
    return output


def test_all_ways_make_the_same_pixels(directory: Path):
    batches = zip(*(windows(str(directory), way=way, height=16) for way in WAYS), strict=True)
    for _ in range(4):
        whole, *others = (batch.numpy() for batch in next(batches))
        assert whole.shape[:2] == (32, 16)
        assert whole.std() > 0
        for other in others:
            np.testing.assert_array_equal(other, whole)


@pytest.mark.usefixtures("in_this_process")
def test_it_runs(directory: Path, tmp_path: Path):
    figures = tmp_path / "figures.json"
    arguments = ["--height=16", "--rounds=1", "--json", str(figures)]
    assert row_decoding.main([str(directory), *arguments]) == 0
    results = json.loads(figures.read_text())["results"]
    assert [row["way"] for row in results] == list(WAYS)
    assert all(row["images/s"] > 0 for row in results)


@pytest.mark.parametrize(
    ("height", "sentence"), [("0", "--height must be at least 1, got 0"), ("16", "no restart rows")]
)
def test_options_are_checked(
    height: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    directory = write_dataset(tmp_path / "receipts")
    with pytest.raises(SystemExit) as ended:
        row_decoding.main([str(directory), f"--height={height}"])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_images_that_are_too_low_are_refused(directory: Path):
    with pytest.raises(ValueError, match="has 100000 rows or more"):
        windows(str(directory), way=WAYS[0], height=100_000)
