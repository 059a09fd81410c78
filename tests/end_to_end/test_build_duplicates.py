"""Receipts that belong together: duplicates are written once, groups stay in one split."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("apache_beam")

from beam_jobs.verify import verify
from schemas.file_names import version_file
from tests.support.dataset_files import manifest_of, records_of
from tests.support.printed import print_receipt
from tests.support.receipts import read_table, write_receipts, write_table


def test_duplicates_are_written_once_and_listed(tmp_path: Path, build, capsys):
    table = write_receipts(tmp_path / "in", {"a": 4, "b": 3})
    rows = read_table(table)
    copies = [
        {**rows[0], "id": "same-file"},
        {**rows[1], "id": "other-label", "layout": "b"},
    ]
    # The same pixels in another container are the same receipt.
    Image.open(tmp_path / "in" / rows[2]["image"]).save(tmp_path / "in" / "images" / "copy.png")
    copies.append({**rows[2], "id": "png", "image": "images/copy.png"})
    write_table(table, rows + copies)
    assert build(table, tmp_path / "out", "--shards=1", "--splits=train=1") == 0
    counts = manifest_of(tmp_path / "out").counts
    assert (counts.inputs, counts.written, counts.duplicates) == (10, 7, 3)
    assert counts.duplicates_with_other_labels == 1
    [listing] = (tmp_path / "out" / version_file(1, "duplicates")).iterdir()
    pairs = [
        {entry["id"], entry["duplicate_of"]}
        for entry in map(json.loads, listing.read_text().splitlines())
    ]
    expected = [
        {rows[0]["id"], "same-file"},
        {rows[1]["id"], "other-label"},
        {rows[2]["id"], "png"},
    ]
    assert all(pair in pairs for pair in expected)
    assert "duplicates    3 (1 with other labels than the record kept)" in capsys.readouterr().out


@pytest.mark.parametrize("options", [(), ("--channels=1",)], ids=["color", "gray"])
def test_lossless_copies_of_large_photos_are_duplicates(
    tmp_path: Path, build: Callable[..., int], options: tuple[str, ...]
):
    """One of them is written, and later copies know it, unless JPEG is decoded at a scale."""
    folder, out, scaled = (tmp_path / name for name in ("in", "out", "scaled"))
    (folder / "mart").mkdir(parents=True)
    for number in range(6):
        image = print_receipt(["99 SPEED MART", "Kuala Lumpur"], seed=number)
        assert max(image.size) >= 2 * 500
        photo = folder / "mart" / f"{number:02d}.jpg"
        image.save(photo, quality=90)
        with Image.open(photo) as decoded:
            decoded.save(photo.with_suffix(".png"))
    options = ("--shards=1", "--splits=train=1", "--max-side=500", *options)
    assert build(folder, out, *options) == 0
    assert build(folder, scaled, *options, "--no-full-decode") == 0
    (tmp_path / "again" / "mart").mkdir(parents=True)
    for name in ("00.jpg", "00.png", "01.jpg", "01.png"):
        shutil.copy(folder / "mart" / name, tmp_path / "again" / "mart" / f"again-{name}")
    for directory, once in ((out, True), (scaled, False)):
        counts = manifest_of(directory).counts
        expected = (6, 6) if once else (12, 0)
        assert (counts.written, counts.duplicates) == expected
        assert build(tmp_path / "again", directory, "--append") == 0
        counts = manifest_of(directory).counts
        assert (counts.written, counts.duplicates) == (expected[0], expected[1] + 4)
        assert list(verify(str(directory), workers=1)) == []


def test_a_layout_that_only_a_duplicate_names_is_no_layout_of_the_dataset(tmp_path: Path, build):
    table = write_receipts(tmp_path / "in", {"a": 3, "b": 1})
    rows = read_table(table)
    write_table(table, [*rows, {**rows[-1], "id": "copy", "layout": "c"}])
    assert build(table, tmp_path / "out", "--shards=1", "--splits=train=1") == 0
    manifest = manifest_of(tmp_path / "out")
    assert (manifest.counts.written, manifest.counts.duplicates) == (4, 1)
    assert manifest.vocabularies["layout"] in (("a", "b"), ("a", "c"))


def test_groups_stay_together_and_shares_give_way(tmp_path: Path, build, capsys):
    table = write_receipts(tmp_path / "in", {"a": 20, "b": 10})
    rows = [
        {**row, "group": f"shop-{row['layout']}-{number % 3}"}
        for number, row in enumerate(read_table(table))
    ]
    write_table(table, rows)
    assert build(table, tmp_path / "out", "--shards=2", "--splits=train=0.8,validation=0.2") == 0
    group = {row["id"]: row["group"] for row in rows}
    split_of: dict[str, str] = {}
    for split in ("train", "validation"):
        for shard in records_of(tmp_path / "out", split):
            for record in shard:
                key = group[record["image/source_id"]]
                assert split_of.setdefault(key, split) == split
    assert set(split_of.values()) == {"train", "validation"}
    assert "warning: keeping groups together put" in capsys.readouterr().out
