"""The whole build, from a table to a dataset directory, on the local runner."""

import csv
import gzip
import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("apache_beam")

import pyarrow
import pyarrow.parquet

from beam_jobs.build import main
from beam_jobs.prepare.references import hash_words, labels_hash
from schemas.lookup import RecordLookup
from schemas.receipt import labels_features
from tests.support.dataset_files import manifest_of, records_of
from tests.support.receipts import (
    LONG_TAIL,
    SROIE,
    contents,
    draw_receipt,
    read_table,
    write_receipts,
    write_table,
)


def test_every_input_is_written_once_with_its_labels(dataset: Path, table: Path):
    rows = {row["id"]: row for row in read_table(table)}
    manifest = manifest_of(dataset)
    seen = [r for split in manifest.splits for shard in records_of(dataset, split) for r in shard]
    assert sorted(record["image/source_id"] for record in seen) == sorted(rows)
    for record in seen:
        row = rows[record["image/source_id"]]
        assert record["receipt/layout"] == row["layout"]
        assert record["receipt/total"] == row["total"]
        assert record["receipt/language"] == row["language"]
        assert manifest.vocabularies["language"][record["receipt/language_id"]] == row["language"]
        assert record["image/object/text"] == [box["text"] for box in row["boxes"]]
        assert record["image/object/bbox/xmin"] == pytest.approx(
            [box["xmin"] / record["image/width"] for box in row["boxes"]]
        )
        # Nothing had to change, so the file is kept as it was.
        assert record["image/encoded"] == (table.parent / row["image"]).read_bytes()


def test_lookups_know_the_records_by_their_hashes(dataset: Path):
    manifest = manifest_of(dataset)
    for split, part in manifest.splits.items():
        for shard, records in zip(part.shards, records_of(dataset, split), strict=True):
            lookup = RecordLookup.from_bytes((dataset / shard.lookup_name).read_bytes())
            ids = [hash_words(record["image/source_id"]) for record in records]
            assert lookup.key.tolist() == [list(words) for words in ids]
            pixels = [f"{high:016x}{low:016x}" for high, low in lookup.pixels.tolist()]
            assert pixels == [record["image/key/pixels"] for record in records]
            features = labels_features(manifest.labels, makes_layouts=False)
            hashes = [labels_hash(features, record) for record in records]
            assert lookup.labels.tolist() == hashes
            assert len(set(pixels)) == len(set(hashes)) == len(records)


def test_layouts_are_even_in_shards_and_splits(dataset: Path):
    manifest = manifest_of(dataset)
    for split in manifest.splits:
        shards = records_of(dataset, split)
        assert len(shards) == 4
        sizes = [len(shard) for shard in shards]
        assert max(sizes) - min(sizes) <= 1
        for layout in LONG_TAIL:
            counts = [sum(r["receipt/layout"] == layout for r in shard) for shard in shards]
            assert all(abs(count - sum(counts) / 4) < 1 for count in counts)
    for layout, total in LONG_TAIL.items():
        in_train = sum(
            r["receipt/layout"] == layout for shard in records_of(dataset, "train") for r in shard
        )
        if total == 1:
            assert in_train == 1
        else:
            assert abs(in_train - 0.9 * total) < 1


def test_order_within_a_shard_is_mixed(table: Path, build, tmp_path: Path):
    assert build(table, tmp_path / "out", "--shards=1", "--splits=train=1") == 0
    [shard] = records_of(tmp_path / "out", "train")
    layouts = [record["receipt/layout"] for record in shard]
    changes = sum(a != b for a, b in itertools.pairwise(layouts))
    assert changes > 2 * len(set(layouts))


@pytest.mark.parametrize("workers", [1, 2])
def test_bytes_do_not_depend_on_order_or_workers(
    dataset: Path, table: Path, build, tmp_path: Path, workers: int
):
    rows = read_table(table)
    random.Random(3).shuffle(rows)
    other = write_table(table.parent / f"{tmp_path.name}.jsonl", rows)
    labels = ("--label=total:float", "--label=language:category")
    assert build(other, tmp_path / "out", "--shards=4", *labels, f"--workers={workers}") == 0
    assert contents(tmp_path / "out") == contents(dataset)
    assert not (tmp_path / "out" / "_staging").exists()


def test_seed_changes_the_choice(table: Path, dataset: Path, build, tmp_path: Path):
    labels = ("--label=total:float", "--label=language:category")
    assert build(table, tmp_path / "out", "--shards=4", "--seed=7", *labels) == 0
    assert manifest_of(tmp_path / "out").digest != manifest_of(dataset).digest


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl.gz"])
def test_other_tables_give_the_same_records(
    table: Path, dataset: Path, build, tmp_path: Path, suffix: str
):
    rows = read_table(table)
    other = table.parent / f"{tmp_path.name}.{suffix}"
    if suffix == "csv":
        with other.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows({**row, "boxes": json.dumps(row["boxes"])} for row in rows)
    elif suffix == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), other)
    else:
        other.write_bytes(gzip.compress(table.read_bytes()))
    labels = ("--label=total:float", "--label=language:category")
    assert build(other, tmp_path / "out", "--shards=4", *labels) == 0
    assert manifest_of(tmp_path / "out").digest == manifest_of(dataset).digest


def hash_of(layout: str, number: int) -> int:
    return sum(layout.encode()) * 100 + number


def test_folder_of_layouts(tmp_path: Path, build):
    for layout, count in {"kiosk": 3, "market": 2}.items():
        for number in range(count):
            draw_receipt(
                tmp_path / "in" / layout / "deep" / f"{number}.png", hash_of(layout, number)
            )
    assert build(tmp_path / "in", tmp_path / "out", "--splits=train=1", "--shards=1") == 0
    manifest = manifest_of(tmp_path / "out")
    assert manifest.vocabularies["layout"] == ("kiosk", "market")
    assert manifest.splits["train"].category_counts["layout"] == (3, 2)
    [shard] = records_of(tmp_path / "out", "train")
    assert {record["image/source_id"] for record in shard} >= {"kiosk/deep/0.png"}


def test_raw_pixels_of_one_size(table: Path, build, tmp_path: Path):
    options = ("--encoding=raw", "--raw-size=64x48", "--channels=1", "--shards=1")
    assert build(table, tmp_path / "out", *options) == 0
    [shard] = records_of(tmp_path / "out", "train")
    assert shard
    for record in shard:
        assert record["image/format"] == "raw"
        pixels = np.frombuffer(record["image/encoded"], np.uint8).reshape(64, 48)
        xmin, ymin = record["image/object/bbox/xmin"][0], record["image/object/bbox/ymin"][0]
        xmax, ymax = record["image/object/bbox/xmax"][0], record["image/object/bbox/ymax"][0]
        inside = pixels[
            round(ymin * 64) + 1 : round(ymax * 64) - 1, round(xmin * 48) + 1 : round(xmax * 48) - 1
        ]
        assert inside.max() < 80


def test_dry_run_reads_no_image(tmp_path: Path, build, capsys):
    rows = [{"image": f"gone-{n}.jpg", "layout": f"l{n % 4}"} for n in range(40)]
    (tmp_path / "in").mkdir()
    table = write_table(tmp_path / "in" / "t.jsonl", [*rows, {"image": "x.jpg"}])
    assert build(table, tmp_path / "out", "--dry-run", "--shards=4") == 0
    printed = capsys.readouterr().out
    assert "to quarantine  1: layout_missing 1" in printed
    assert "train          36 records in 4 shards" in printed
    assert "validation     4 records in 4 shards" in printed
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out" / "_staging").exists()


def test_empty_split_is_written_and_said(tmp_path: Path, build, capsys):
    table = write_receipts(tmp_path / "in", {"a": 1, "b": 1})
    assert build(table, tmp_path / "out", "--shards=3") == 0
    manifest = manifest_of(tmp_path / "out")
    assert [split.records for split in manifest.splits.values()] == [2, 0]
    assert [len(split.shards) for split in manifest.splits.values()] == [3, 3]
    assert "warning: split validation is empty" in capsys.readouterr().out


def test_changed_image_is_prepared_again(tmp_path: Path, build):
    table = write_receipts(tmp_path / "in", {"a": 6})
    rows = read_table(table)
    bad = write_table(table.parent / "bad.jsonl", [*rows, {"image": "gone.jpg", "layout": "a"}])
    assert build(bad, tmp_path / "out") == 1  # leaves its prepared chunks
    assert list((tmp_path / "out" / "_staging" / "prepared").glob("*.npz"))
    changed = tmp_path / "in" / rows[0]["image"]
    draw_receipt(changed, 999)
    assert build(bad, tmp_path / "out", "--max-bad-fraction=1", "--splits=train=1") == 0
    [shard] = records_of(tmp_path / "out", "train")
    [record] = [r for r in shard if r["image/source_id"] == rows[0]["id"]]
    assert record["image/encoded"] == changed.read_bytes()


@pytest.mark.skipif(not SROIE.exists(), reason="the real receipts are not at hand")
def test_real_receipts(tmp_path: Path, build):
    options = ("--shards=8", "--max-side=1024", "--label=total:string", "--workers=2")
    assert build(SROIE, tmp_path / "out", *options) == 0
    manifest = manifest_of(tmp_path / "out")
    assert (manifest.counts.inputs, manifest.counts.written) == (205, 205)
    assert len(manifest.vocabularies["layout"]) == 101
    for split in manifest.splits:
        shards = records_of(tmp_path / "out", split)
        for layout in manifest.vocabularies["layout"]:
            counts = [sum(r["receipt/layout"] == layout for r in shard) for shard in shards]
            assert all(abs(count - sum(counts) / 8) < 1 for count in counts)
        assert all(max(r["image/height"], r["image/width"]) <= 1024 for s in shards for r in s)


def test_unknown_option_is_refused(tmp_path: Path, table: Path, capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["--input", str(table), "--output", str(tmp_path / "out"), "--shard", "3"])
    assert exit_info.value.code == 2
    assert "unknown argument --shard" in capsys.readouterr().err
