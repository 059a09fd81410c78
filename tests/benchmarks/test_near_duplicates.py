"""Near-duplicates: the scores, perceptual hashes, and small runs."""

import random
import shutil
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("scipy")
pytest.importorskip("psutil")

from PIL import Image

from benchmarks import near_duplicates
from tests.support.receipts import SROIE, draw_receipt, read_table


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
    arguments = ["--count=60", "--receipts", "2100"]
    assert near_duplicates.main(arguments) == 0
    printed = capsys.readouterr().out
    [row] = [line.split() for line in printed.splitlines() if line.split()[2:3] == ["numbers"]]
    assert row[-5:] == ["3", "1", "3", "1", "0"]
    [row] = [line.split() for line in printed.splitlines() if line.split()[2:3] == ["images"]]
    assert row[-1] == "0"
    assert "2,100 receipts of numbers alone" in printed
    assert "photographed again             100.00" in printed
    assert "pairs                          100.00" in printed


@pytest.mark.skipif(not SROIE.is_dir(), reason="needs the receipts of SROIE")
def test_variants_of_real_receipts(tmp_path: Path):
    for image in sorted((SROIE / "img").iterdir())[:3]:
        for name in (f"img/{image.name}", f"box/{image.stem}.csv", f"key/{image.stem}.json"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            shutil.copy(SROIE / name, tmp_path / name)
    table = near_duplicates.saved_again(str(tmp_path), tmp_path / "again")
    rows = read_table(table)
    assert len(rows) == len(list((tmp_path / "again" / "images").iterdir())) == 5 * 3
    cropped = [len(row["boxes"]) for row in rows if row["id"].endswith("cropped")]
    whole = [len(row["boxes"]) for row in rows if not row["photo_of"]]
    assert all(0 < part <= all_ for part, all_ in zip(cropped, whole, strict=True))


def test_errors_are_as_many_as_asked_for():
    lines = ["q" * 1000] * 20
    for change in (near_duplicates.misread, near_duplicates.confuse):
        changed = change(lines, random.Random(0), rate=0.02)
        assert change(lines, random.Random(0), rate=0) == lines
        # Some errors add a character and keep the right one.
        assert 0.97 < "".join(changed).count("q") / 20_000 < 0.99


def test_tickets_have_times_of_their_own():
    tickets = near_duplicates.tickets(600)
    assert len(set(map(tuple, tickets))) == 600
    [row] = [
        row
        for row in near_duplicates.misread_rows("tickets", tickets, [1], share_twice=0.05)
        if row["errors"] == "none"
    ]
    assert row == {
        "receipts": "tickets",
        "errors": "none",
        "again": 30,
        "recall": 1.0,
        "pairs": 30,
        "precision": 1.0,
        "sure, wrong": 0,
    }


@pytest.mark.skipif(not SROIE.is_dir(), reason="needs the receipts of SROIE")
def test_errors_of_ocr_hide_few_real_receipts():
    texts = near_duplicates.transcripts(str(SROIE))
    assert len(texts) > 100
    rows = near_duplicates.misread_rows("SROIE", texts, [1, 2])
    recall = {row["errors"]: row["recall"] for row in rows}
    precision = {row["errors"]: row["precision"] for row in rows}
    assert recall.keys() == near_duplicates.CHANGES.keys()
    for errors in ("none", "decimal comma", "no currency", "lines in reverse order"):
        assert recall[errors] == precision[errors] == 1, errors
    for errors in ("2.0% wrong in both", "2 % wrong in one", "last 15 % cropped"):
        assert recall[errors] >= 0.93, errors
        assert precision[errors] >= 0.98, errors
    assert recall["2 % confused in both"] >= 0.9
    assert all(row["sure, wrong"] == 0 for row in rows)
