"""Receipts that were photographed twice: kept in one split, or dropped, and listed."""

import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("apache_beam")

from beam_jobs.compact import main as compact_main
from beam_jobs.forget import main as forget_main
from beam_jobs.verify import verify
from tests.support.dataset_files import manifest_of, split_of
from tests.support.duplicates import listed, pairs_of
from tests.support.grown import table_of
from tests.support.receipts import contents, draw_receipt

SPLITS = "--splits=train=0.5,validation=0.5"
LAYOUTS = {"beta": 60, "kiosk": 8, "one": 1}
TWICE = 12  # of the receipts of each layout, if it has so many


def row_of(folder: Path, layout: str, number: int, *, photo: int = 0, **more) -> dict:
    """Row of a receipt whose numbers depend on the purchase, and whose image on the photo."""
    id_ = f"{layout}-{number}" + (f"-photo-{photo}" if photo else "")
    boxes = draw_receipt(folder / f"{id_}.jpg", hash_of(layout) + 1000 * photo + number)
    rng = np.random.default_rng(hash_of(layout) + number)
    texts = [
        f"{layout} 0351 50480",
        f"2024-05-{number % 28 + 1:02d} 12:{number % 60:02d} no {number:06d}",
        " ".join(f"{cents / 100:.2f}" for cents in rng.integers(100, 9999, 150).tolist()),
    ]
    for box, text in zip(boxes, texts, strict=True):
        box["text"] = text
    return {
        "id": id_,
        "image": str(folder / f"{id_}.jpg"),
        "layout": layout,
        "boxes": boxes,
        **more,
    }


def hash_of(layout: str) -> int:
    return 100_000 * sum(map(ord, layout))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder = tmp_path_factory.mktemp("images")
    once = [row_of(folder, layout, n) for layout, count in LAYOUTS.items() for n in range(count)]
    twice = [
        row_of(folder, layout, n, photo=1)
        for layout, count in LAYOUTS.items()
        for n in range(min(count, TWICE))
    ]
    return once + twice


@pytest.fixture(scope="module")
def grouped(rows: list[dict], build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grouped")
    assert build(table_of(folder, "rows", rows), folder / "out", "--shards=2", SPLITS) == 0
    return folder / "out"


EXPECTED = {
    frozenset((f"{layout}-{n}", f"{layout}-{n}-photo-1"))
    for layout, count in LAYOUTS.items()
    for n in range(min(count, TWICE))
}


def test_both_photos_are_in_one_split_and_listed(grouped: Path, rows: list[dict]):
    lines = listed(grouped)
    assert pairs_of(lines) == EXPECTED
    assert {line["outcome"] for line in lines} == {"grouped"}
    assert all(line["numbers"] >= 5 for line in lines)
    assert {(line["misread"], line["more"]) for line in lines} == {(0, 0)}
    splits = split_of(grouped)
    assert len(splits) == len(rows)
    assert all(len({splits[id_] for id_ in pair}) == 1 for pair in EXPECTED)
    assert len(set(splits.values())) == 2
    assert manifest_of(grouped).counts.near_duplicates == len(EXPECTED)
    assert list(verify(str(grouped), workers=1)) == []


def test_without_it_some_are_parted(rows: list[dict], build, tmp_path: Path):
    """Else the tests above show nothing."""
    table, out = table_of(tmp_path, "rows", rows), tmp_path / "out"
    assert build(table, out, "--shards=2", SPLITS, "--near-duplicates=off") == 0
    splits = split_of(out)
    assert any(len({splits[id_] for id_ in pair}) == 2 for pair in EXPECTED)
    assert listed(out) == []


def test_bytes_do_not_depend_on_order_or_workers(
    grouped: Path, rows: list[dict], build, tmp_path: Path
):
    table = table_of(tmp_path, "rows", rows[::-1])
    assert build(table, tmp_path / "out", "--shards=2", SPLITS, "--workers=2") == 0
    assert contents(tmp_path / "out") == contents(grouped)


def test_one_of_them_is_dropped(rows: list[dict], build, tmp_path: Path, capsys):
    table, out = table_of(tmp_path, "rows", rows), tmp_path / "out"
    assert build(table, out, "--shards=2", SPLITS, "--near-duplicates=drop") == 0
    splits = split_of(out)
    assert all(len(splits.keys() & pair) == 1 for pair in EXPECTED)
    counts = manifest_of(out).counts
    assert (counts.written, counts.duplicates) == (len(rows) - len(EXPECTED), len(EXPECTED))
    assert counts.duplicates_with_other_labels == 0
    dropped = listed(out, name="duplicates")
    assert {frozenset((line["id"], line["duplicate_of"])) for line in dropped} == EXPECTED
    assert not {line["id"] for line in dropped} & splits.keys()
    assert {line["outcome"] for line in listed(out)} == {"dropped"}
    assert f"{len(EXPECTED)} pairs" in capsys.readouterr().out
    assert list(verify(str(out), workers=1)) == []


def test_groups_of_the_table_are_joined(rows: list[dict], build, tmp_path: Path):
    grouped_rows = [{**row, "group": row["id"][-1] + row["layout"]} for row in rows]
    table, out = table_of(tmp_path, "rows", grouped_rows), tmp_path / "out"
    assert build(table, out, "--shards=2", SPLITS) == 0
    splits = split_of(out)
    members: dict[str, set[str]] = {}
    for row in grouped_rows:
        members.setdefault(row["group"], set()).add(splits[row["id"]])
    assert all(len(one) == 1 for one in members.values())
    assert all(len({splits[id_] for id_ in pair}) == 1 for pair in EXPECTED)


def test_a_dry_run_plans_the_same_splits(rows: list[dict], build, grouped: Path, tmp_path, capsys):
    table = table_of(tmp_path, "rows", rows)
    assert build(table, tmp_path / "out", "--shards=2", SPLITS, "--dry-run") == 0
    shown = capsys.readouterr().out
    for name, split in manifest_of(grouped).splits.items():
        assert f"{name:<12}" in shown
        assert f"{sum(split.layout_counts)} records" in shown


@pytest.fixture(scope="module")
def appended(rows: list[dict], build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of the first photos, to which the second ones are appended."""
    folder = tmp_path_factory.mktemp("appended")
    once = [row for row in rows if "photo" not in row["id"]]
    twice = [row for row in rows if "photo" in row["id"]]
    assert build(table_of(folder, "once", once), folder / "out", "--shards=2", SPLITS) == 0
    assert build(table_of(folder, "twice", twice), folder / "out", "--append") == 0
    return folder / "out"


def test_what_is_appended_goes_where_its_first_photo_is(appended: Path):
    assert pairs_of(listed(appended, version=2)) == EXPECTED
    splits = split_of(appended)
    assert all(len({splits[id_] for id_ in pair}) == 1 for pair in EXPECTED)
    assert list(verify(str(appended), workers=1)) == []


def test_a_compacted_dataset_still_knows_them(appended: Path, rows, build, tmp_path: Path):
    copy = Path(shutil.copytree(appended, tmp_path / "copy"))
    assert compact_main([str(copy)]) == 0
    images = tmp_path / "images"
    third = [row_of(images, "beta", n, photo=2) for n in range(20)]
    assert build(table_of(tmp_path, "third", third), copy, "--append") == 0
    splits = split_of(copy)
    for row in third:
        assert splits[row["id"]] == splits[row["id"].removesuffix("-photo-2")]


def test_a_forgotten_receipt_is_in_no_listing(grouped: Path, build, tmp_path: Path):
    copy = Path(shutil.copytree(grouped, tmp_path / "copy"))
    (tmp_path / "ids.txt").write_text("beta-3\none-0-photo-1\n")
    assert forget_main([str(copy), "--ids", str(tmp_path / "ids.txt"), "--workers=1"]) == 0
    version = max(int(path.name) for path in (copy / "versions").iterdir())
    left = pairs_of(listed(copy, version=version))
    assert left == {p for p in EXPECTED if not p & {"beta-3", "one-0-photo-1"}}
    assert manifest_of(copy).counts.near_duplicates == len(left)
    assert list(verify(str(copy), workers=1)) == []
    again = [row_of(tmp_path / "images", "beta", n, photo=3) for n in (3, 20)]
    assert build(table_of(tmp_path, "again", again), copy, "--append") == 0
    splits = split_of(copy)
    assert splits["beta-20-photo-3"] == splits["beta-20"]
    assert splits["beta-3-photo-3"] == splits["beta-3-photo-1"]


def test_bad_values(rows: list[dict], build, grouped: Path, tmp_path: Path, capsys):
    table = table_of(tmp_path, "rows", rows)
    with pytest.raises(SystemExit, match="2"):
        build(table, tmp_path / "out", "--near-duplicates=merge")
    assert "must be one of group, drop, off, got 'merge'" in capsys.readouterr().err
    copy = Path(shutil.copytree(grouped, tmp_path / "copy"))
    with pytest.raises(SystemExit, match="2"):
        build(table, copy, "--append", "--near-duplicates=off")
    assert "was built with group" in capsys.readouterr().err


def test_a_folder_has_no_numbers(rows: list[dict], build, tmp_path: Path, capsys):
    (tmp_path / "in" / "beta").mkdir(parents=True)
    for row in rows[:3]:
        shutil.copy(row["image"], tmp_path / "in" / "beta")
    options = ("--input-format=folder", "--near-duplicates=drop")
    with pytest.raises(SystemExit, match="2"):
        build(tmp_path / "in", tmp_path / "out", *options)
    shown = capsys.readouterr().err
    assert "--near-duplicates is drop, and the input is a folder of images" in shown
    assert "and give --compare-images to keep copies in one split" in shown


def test_fingerprints_of_another_version(
    rows: list[dict], build, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
):
    table, out = table_of(tmp_path, "rows", rows[:9]), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("beam_jobs.options.FINGERPRINTS_VERSION", 1)
        assert build(table, out) == 0
    assert manifest_of(out).build_options["fingerprints_version"] == 1
    assert list(verify(str(out), workers=1)) == []
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        build(table_of(tmp_path, "more", rows[9:12]), out, "--append")
    assert f"run python -m beam_jobs.compact {out} once, then append" in capsys.readouterr().err
    assert compact_main([str(out)]) == 0
    assert build(table_of(tmp_path, "more", rows[9:12]), out, "--append") == 0
    assert list(verify(str(out), workers=1)) == []
