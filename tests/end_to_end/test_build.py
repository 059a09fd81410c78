"""The whole build, from a table to a dataset directory, on the local runner."""

import errno
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("apache_beam")

import itertools

from beam_jobs.build import main
from schemas.example import decode_example
from schemas.index import RecordIndex
from schemas.manifest import COMPLETED, MANIFEST, Manifest
from schemas.tfrecord import unframe
from tests.support.receipts import (
    LONG_TAIL,
    SROIE,
    contents,
    draw_receipt,
    read_table,
    write_receipts,
    write_table,
)


def manifest_of(directory: Path) -> Manifest:
    assert (directory / COMPLETED).exists()
    return Manifest.from_json((directory / MANIFEST).read_text())


def records_of(directory: Path, split: str) -> list[list[dict]]:
    """Decoded records of each shard, found through its index."""
    manifest = manifest_of(directory)
    shards = []
    for shard in manifest.splits[split].shards:
        data = (directory / shard.name).read_bytes()
        index = RecordIndex.from_bytes((directory / shard.index_name).read_bytes())
        shards.append(
            [
                decode_example(manifest.features, unframe(data[start : start + length], start))
                for start, length in zip(index.offset.tolist(), index.length.tolist(), strict=True)
            ]
        )
    return shards


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
    import gzip

    import pyarrow
    import pyarrow.parquet

    rows = read_table(table)
    other = table.parent / f"{tmp_path.name}.{suffix}"
    if suffix == "csv":
        import csv

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


def hash_of(layout: str, number: int) -> int:
    return sum(layout.encode()) * 100 + number


def test_duplicates_are_written_once_and_listed(tmp_path: Path, build, capsys):
    table = write_receipts(tmp_path / "in", {"a": 4, "b": 3})
    rows = read_table(table)
    copies = [
        {**rows[0], "id": "same-file"},
        {**rows[1], "id": "other-label", "layout": "b"},
    ]
    # The same pixels in another container are the same receipt.
    from PIL import Image

    Image.open(tmp_path / "in" / rows[2]["image"]).save(tmp_path / "in" / "images" / "copy.png")
    copies.append({**rows[2], "id": "png", "image": "images/copy.png"})
    write_table(table, rows + copies)
    assert build(table, tmp_path / "out", "--shards=1", "--splits=train=1") == 0
    counts = manifest_of(tmp_path / "out").counts
    assert (counts.inputs, counts.written, counts.duplicates) == (10, 7, 3)
    assert counts.duplicates_with_other_labels == 1
    [listing] = (tmp_path / "out" / "duplicates").iterdir()
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
    assert "duplicates   3 (1 with other labels than the record kept)" in capsys.readouterr().out


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


def test_too_many_bad_inputs_publish_nothing(tmp_path: Path, build, capsys):
    table = write_receipts(tmp_path / "in", {"a": 6})
    write_table(table, [*read_table(table), {"id": "x", "image": "gone.jpg", "layout": "a"}])
    assert build(table, tmp_path / "out", "--max-bad-fraction=0.1") == 1
    error = capsys.readouterr().err
    assert "1 of 7 inputs were rejected, more than --max-bad-fraction 0.1 allows" in error
    assert "file_missing, such as x:" in error
    assert "Traceback" not in error
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["_staging"]
    assert build(table, tmp_path / "out", "--max-bad-fraction=0.2") == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "20 of 20 inputs were rejected, more than --max-bad-fraction 0.05 allows"),
        (("--max-bad-fraction=1",), "all 20 inputs were rejected; nothing was published"),
    ],
    ids=["default", "any_fraction"],
)
def test_a_label_that_no_row_has_is_said_before_an_image_is_read(
    tmp_path: Path, build, capsys, options: tuple[str, ...], sentence: str
):
    table = write_receipts(tmp_path / "in", {"a": 20})
    assert build(table, tmp_path / "out", "--label=totl:float", *options) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert "20  label_missing, such as a-0: label totl has no value" in error
    assert (
        f"finished work is kept in {tmp_path}/out/_staging: the same command reuses it; delete "
        in error
    )
    assert not (tmp_path / "out" / "_staging" / "prepared").exists()


def test_bad_rows_are_counted_with_bad_images(tmp_path: Path, build, capsys):
    """Few bad rows let the images be read, and are counted once."""
    table = write_receipts(tmp_path / "in", {"a": 8})
    bad = [{"id": "x", "image": "gone.jpg", "layout": "a"}, {"id": "y", "image": "gone.jpg"}]
    write_table(table, [*read_table(table), *bad])
    assert build(table, tmp_path / "out", "--max-bad-fraction=0.1") == 1
    assert "2 of 10 inputs were rejected" in capsys.readouterr().err
    assert list((tmp_path / "out" / "_staging" / "prepared").glob("*.npz"))
    assert build(table, tmp_path / "out", "--max-bad-fraction=0.2", "--splits=train=1") == 0
    counts = manifest_of(tmp_path / "out").counts
    assert counts.quarantined == {"file_missing": 1, "layout_missing": 1}


def test_a_header_that_cannot_work_leaves_nothing_to_keep(tmp_path: Path, build, capsys):
    (tmp_path / "t.csv").write_text("picture,layout\n")
    assert build(tmp_path / "t.csv", tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert "has no column image" in error
    assert "is kept" not in error


def test_finished_dataset_is_not_harmed(tmp_path: Path, build, capsys):
    table = write_receipts(tmp_path / "in", {"a": 6})
    assert build(table, tmp_path / "out", "--shards=3", "--splits=train=1") == 0
    before = contents(tmp_path / "out")
    with pytest.raises(SystemExit) as exit_info:
        build(table, tmp_path / "out", "--shards=2")
    assert exit_info.value.code == 2
    assert "holds a finished dataset: choose another --output" in capsys.readouterr().err
    # A failing replacement leaves the old one whole.
    bad = write_table(tmp_path / "in" / "bad.jsonl", [{"image": "gone.jpg", "layout": "a"}])
    assert build(bad, tmp_path / "out", "--overwrite") == 1
    left = contents(tmp_path / "out")
    assert {name: left[name] for name in left if not name.startswith("_staging/")} == before
    # A good one replaces it wholly: no shard of the old numbering is left.
    assert build(table, tmp_path / "out", "--shards=2", "--splits=train=1", "--overwrite") == 0
    assert len(manifest_of(tmp_path / "out").splits["train"].shards) == 2
    assert not list((tmp_path / "out").glob("*-of-00003"))


@pytest.mark.parametrize(
    ("name", "marker"),
    [
        pytest.param("thesis.txt", "", id="beside_the_dataset"),
        pytest.param("_staging/thesis.txt", "", id="in_staging"),
        pytest.param("_staging/plan.json", "", id="in_staging_that_no_build_made"),
        pytest.param("_staging/prepared/thesis.txt", "_staging/BUILD", id="in_a_builds_staging"),
    ],
)
def test_foreign_files_are_not_harmed(tmp_path: Path, build, capsys, name: str, marker: str):
    table = write_receipts(tmp_path / "in", {"a": 2})
    for each in filter(None, (name, marker)):
        path = tmp_path / "out" / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("precious")
    before = contents(tmp_path / "out")
    with pytest.raises(SystemExit) as exit_info:
        build(table, tmp_path / "out")
    assert exit_info.value.code == 2
    assert f"out holds {name}, which no build wrote" in capsys.readouterr().err
    assert contents(tmp_path / "out") == before


def test_a_staging_directory_that_is_a_link_is_not_followed(tmp_path: Path, build, capsys):
    table = write_receipts(tmp_path / "in", {"a": 2})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "thesis.txt").write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "_staging").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SystemExit):
        build(table, tmp_path / "out")
    assert "out holds _staging, which no build wrote" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["thesis.txt"]


def test_nothing_outside_the_output_is_touched(tmp_path: Path, build):
    table = write_receipts(tmp_path / "in", {"a": 2})
    assert build(table, tmp_path / "data.staging") == 0
    (tmp_path / "x.staging").mkdir()
    (tmp_path / "x.staging" / "thesis.txt").write_text("precious")
    before = contents(tmp_path)
    assert build(table, tmp_path / "data") == 0
    assert build(table, tmp_path / "x") == 0
    assert build(table, tmp_path / "y", "--dry-run") == 0
    after = contents(tmp_path)
    assert {name: after[name] for name in after if name in before} == before
    assert {name.split("/")[0] for name in after if name not in before} == {"data", "x"}


def test_an_output_that_is_a_volume_of_its_own(
    tmp_path: Path, build, monkeypatch: pytest.MonkeyPatch
):
    """Nothing can be renamed into a Docker volume at /data with --output /data."""
    table = write_receipts(tmp_path / "in", {"a": 6})
    volume = tmp_path / "volume"
    volume.mkdir()
    replace, renamed = os.replace, []

    def rename_within(source: str, target: str) -> None:
        inside = {Path(path).is_relative_to(volume) for path in (source, target)}
        if inside == {True, False}:
            raise OSError(errno.EXDEV, "Invalid cross-device link", source)
        renamed.append(target)
        replace(source, target)

    monkeypatch.setattr(os, "replace", rename_within)
    assert build(table, volume, "--shards=2") == 0
    assert build(table, volume, "--shards=3", "--overwrite") == 0
    assert str(volume / COMPLETED) in map(str, renamed)
    assert len(manifest_of(volume).splits["train"].shards) == 3


def test_an_output_that_files_cannot_be_renamed_into(
    tmp_path: Path, table: Path, build, capsys, monkeypatch: pytest.MonkeyPatch
):
    """A staging directory that is a volume of its own is named before an image is read."""

    def fail(source: str, target: str) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link", str(source))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(SystemExit) as exit_info:
        build(table, tmp_path / "out")
    assert exit_info.value.code == 2
    assert "out can't be written: Invalid cross-device link" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_an_output_that_is_a_file(tmp_path: Path, table: Path, build, capsys, name: str):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(SystemExit) as exit_info:
        build(table, tmp_path / name)
    assert exit_info.value.code == 2
    assert f"{name} can't be written: Not a directory" in capsys.readouterr().err
    assert build(table, tmp_path / name, "--dry-run") == 1
    assert f"{name} can't be written: Not a directory" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "precious"


def test_empty_split_is_written_and_said(tmp_path: Path, build, capsys):
    table = write_receipts(tmp_path / "in", {"a": 1, "b": 1})
    assert build(table, tmp_path / "out", "--shards=3") == 0
    manifest = manifest_of(tmp_path / "out")
    assert [split.records for split in manifest.splits.values()] == [2, 0]
    assert [len(split.shards) for split in manifest.splits.values()] == [3, 3]
    assert "warning: split validation is empty" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["empty.jsonl", "gone.jsonl", "gone.csv", "gone.parquet", "folder"]
)
def test_empty_input_is_an_error(tmp_path: Path, build, capsys, name: str):
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "folder").mkdir()
    assert build(tmp_path / name, tmp_path / "out") == 1
    assert f"no receipts found in {tmp_path / name}" in capsys.readouterr().err


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
