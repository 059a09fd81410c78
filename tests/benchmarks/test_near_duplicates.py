"""Near-duplicates: the scores, perceptual hashes, and small runs."""

from pathlib import Path

import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("scipy")
pytest.importorskip("psutil")

from PIL import Image

from benchmarks import near_duplicates
from tests.support.receipts import SROIE, draw_receipt


def test_scores():
    purchase = {"a": "a", "b": "a", "c": "a", "d": "d", "e": "d"}
    found = [frozenset("ab"), frozenset("bc"), frozenset("cd")]
    assert near_duplicates.score(found, purchase) == {
        "again": 3,
        "recall": round(2 / 3, 4),
        "pairs": 3,
        "precision": round(2 / 3, 4),
    }
    assert near_duplicates.score([], {"a": "a"})["precision"] == 0


def test_perceptual_hashes_are_those_of_the_image(tmp_path: Path):
    for number in range(2):
        draw_receipt(tmp_path / f"{number}.png", 50 * number)
    with Image.open(tmp_path / "0.png") as image:
        image.resize((48, 80)).save(tmp_path / "half.png")
    images = {name: tmp_path / f"{name}.png" for name in ("0", "1", "half")}
    assert near_duplicates.hashed_pairs(images) == {frozenset(("0", "half"))}


def test_it_runs(capsys: pytest.CaptureFixture[str]):
    arguments = ["--count=40", "--receipts", "2100"]
    assert near_duplicates.main(arguments) == 0
    printed = capsys.readouterr().out
    [row] = [line.split() for line in printed.splitlines() if " numbers " in line]
    assert row[-5:] == ["2", "1", "2", "1", "0"]
    assert "2,100 receipts of numbers alone" in printed
    assert "photographed again             100.00" in printed
    assert "pairs                          100.00" in printed


@pytest.mark.skipif(not SROIE.is_dir(), reason="needs the receipts of SROIE")
def test_variants_of_real_receipts(tmp_path: Path):
    table = near_duplicates.saved_again(str(SROIE), tmp_path / "again")
    lines = table.read_text().splitlines()
    images = list((tmp_path / "again" / "images").iterdir())
    assert len(lines) == len(images) == 5 * 205
