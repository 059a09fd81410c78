"""Receipts that belong together: duplicates are written once, groups stay in one split."""

import json
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("apache_beam")

from schemas.file_names import version_file
from tests.support.dataset_files import manifest_of, records_of
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
