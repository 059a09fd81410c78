"""Receipts without text that were sent twice, the second time encoded again or scaled."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("apache_beam")

from beam_jobs.compact import main as compact_main
from beam_jobs.forget import main as forget_main
from beam_jobs.verify import verify
from tests.support.dataset_files import manifest_of, split_of
from tests.support.duplicates import listed, pairs_of
from tests.support.printed import print_receipt
from tests.support.receipts import contents

SPLITS = "--splits=train=0.5,validation=0.5"
OPTIONS = ("--shards=2", SPLITS, "--compare-images")
SHOP = ["99 SPEED MART", "Lot 2811, Jalan Angsa", "Kuala Lumpur", "Cash sale"]
COUNT, TWICE = 24, 10
PAIRS = {frozenset((f"mart/{n:02d}", f"mart/{n:02d}-again")) for n in range(TWICE)}


def save(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    print_receipt(SHOP, seed=number).save(path, quality=90)


def save_again(path: Path, source: Path, number: int) -> None:
    """Saves an image in half its size, or with less quality."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(source) as image:
        half = image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS)
        (half if number % 2 else image).save(path, quality=50)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("once")
    for number in range(COUNT):
        save(folder / "mart" / f"{number:02d}.jpg", number)
    return folder


@pytest.fixture(scope="module")
def again(once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("again")
    for number in range(TWICE):
        copy = folder / "mart" / f"{number:02d}-again.jpg"
        save_again(copy, once / "mart" / f"{number:02d}.jpg", number)
    return folder


@pytest.fixture(scope="module")
def folder(once: Path, again: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("both") / "in"
    shutil.copytree(once, folder)
    shutil.copytree(again, folder, dirs_exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def grouped(folder: Path, build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("grouped") / "out"
    assert build(folder, out, *OPTIONS) == 0
    return out


def test_copies_are_in_one_split_and_listed(grouped: Path):
    lines = listed(grouped)
    assert pairs_of(lines) == {frozenset(f"{id_}.jpg" for id_ in pair) for pair in PAIRS}
    assert {line["outcome"] for line in lines} == {"grouped"}
    assert all(0 < line["differing_bits"] <= 80 for line in lines)
    splits = split_of(grouped)
    assert len(splits) == COUNT + TWICE
    assert all(len({splits[f"{id_}.jpg"] for id_ in pair}) == 1 for pair in PAIRS)
    assert set(splits.values()) == {"train", "validation"}
    assert manifest_of(grouped).build_options["compare_images"] is True
    assert list(verify(str(grouped), workers=1)) == []


def test_images_are_not_compared_unless_asked(
    folder: Path, again: Path, build, tmp_path: Path, capsys
):
    out = tmp_path / "out"
    assert build(folder, out, "--shards=2", SPLITS) == 0
    splits = split_of(out)
    assert any(len({splits[f"{id_}.jpg"] for id_ in pair}) == 2 for pair in PAIRS)
    assert listed(out) == []
    with pytest.raises(SystemExit, match="2"):
        build(again, out, "--append", "--compare-images")
    assert "--compare-images: the dataset in" in capsys.readouterr().err


def test_bytes_do_not_depend_on_workers(folder: Path, grouped: Path, build, tmp_path: Path):
    assert build(folder, tmp_path / "out", *OPTIONS, "--workers=2") == 0
    assert contents(tmp_path / "out") == contents(grouped)


def test_raw_images_are_compared(folder: Path, build, tmp_path: Path):
    raw = ("--encoding=raw", "--raw-size=192x96", "--channels=1")
    assert build(folder, tmp_path / "out", *OPTIONS, *raw) == 0
    assert len(listed(tmp_path / "out")) == TWICE
    splits = split_of(tmp_path / "out")
    assert all(len({splits[f"{id_}.jpg"] for id_ in pair}) == 1 for pair in PAIRS)
    assert list(verify(str(tmp_path / "out"), workers=1)) == []


def test_appended_copies_go_where_their_receipts_are(
    once: Path, again: Path, build, tmp_path: Path
):
    out = tmp_path / "out"
    assert build(once, out, *OPTIONS) == 0
    assert build(again, out, "--append") == 0
    assert len(listed(out, version=2)) == TWICE
    splits = split_of(out)
    assert all(len({splits[f"{id_}.jpg"] for id_ in pair}) == 1 for pair in PAIRS)
    (tmp_path / "ids.txt").write_text("mart/03.jpg\n")
    assert forget_main([str(out), "--ids", str(tmp_path / "ids.txt"), "--workers=1"]) == 0
    assert compact_main([str(out)]) == 0
    for number in (3, 4, COUNT - 1):
        source = once / "mart" / f"{number:02d}.jpg"
        save_again(tmp_path / "third" / "mart" / f"{number:02d}-third.jpg", source, number + 1)
    assert build(tmp_path / "third", out, "--append") == 0
    splits = split_of(out)
    for number, other in ((3, "03-again"), (4, "04"), (COUNT - 1, f"{COUNT - 1:02d}")):
        assert splits[f"mart/{number:02d}-third.jpg"] == splits[f"mart/{other}.jpg"]
    assert list(verify(str(out), workers=1)) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--near-duplicates=off",), "--compare-images is for near-duplicates, and"),
        (("--dry-run",), "--dry-run reads no image, and --compare-images compares them"),
    ],
)
def test_bad_values(
    folder: Path, build, tmp_path: Path, capsys, options: tuple[str, ...], message: str
):
    with pytest.raises(SystemExit, match="2"):
        build(folder, tmp_path / "out", *OPTIONS, *options)
    assert message in capsys.readouterr().err
