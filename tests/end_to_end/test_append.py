"""Appending adds a version to a dataset, and leaves the older ones as they were."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.verify import verify
from beam_jobs.writing.output import read_excluded
from schemas.file_names import COMPLETED, version_file
from tests.support.dataset_files import manifest_of, records_of
from tests.support.grown import LABELS, LAYOUTS, table_of, truth_of, version_of
from tests.support.receipts import contents, draw_receipt


def test_the_records_are_those_of_one_build(grown: Path, rows: list[dict], build, tmp_path: Path):
    table = table_of(tmp_path, "all", rows)
    assert build(table, tmp_path / "once", "--shards=3", *LABELS) == 0
    assert truth_of(grown) == truth_of(tmp_path / "once")
    assert list(verify(str(grown), workers=1)) == []
    once, parts = manifest_of(tmp_path / "once"), manifest_of(grown)
    for split in once.splits:
        by_layout = [
            dict(zip(made.vocabularies["layout"], made.splits[split].layout_counts, strict=True))
            for made in (once, parts)
        ]
        # Each generation rounds the shares by less than one record; groups stay where they are.
        assert all(abs(by_layout[0][name] - by_layout[1][name]) <= 3 for name in LAYOUTS)
    assert parts.counts.known == 5
    assert parts.counts.written == len(rows)


def test_ids_of_categories_never_move(grown: Path):
    first, second, third = (version_of(grown, version).vocabularies for version in (1, 2, 3))
    for name in first:
        assert second[name][: len(first[name])] == first[name]
        assert third[name][: len(second[name])] == second[name]
    assert third["layout"][-1] == "aral"
    for record in truth_of(grown).values():
        assert record["receipt/layout"] in third["layout"]


def test_groups_stay_in_their_split(grown: Path):
    splits: dict[str, set[str]] = {}
    for split in manifest_of(grown).splits:
        for shard in records_of(grown, split):
            for record in shard:
                splits.setdefault(record["receipt/group"], set()).add(split)
    del splits[""]
    assert len(splits) == 8
    assert all(len(names) == 1 for names in splits.values())


def test_each_generation_is_dealt_by_itself(grown: Path):
    for generation in manifest_of(grown).generations:
        for part in generation.splits.values():
            sizes = [shard.records for shard in part.shards]
            assert max(sizes) - min(sizes) <= 1


def test_no_old_byte_is_touched(grown: Path, rows: list[dict], build, tmp_path: Path):
    copy = Path(shutil.copytree(grown, tmp_path / "copy"))
    before = contents(copy)
    extra = {**rows[0], "id": "extra", "image": str(tmp_path / "extra.jpg")}
    extra["boxes"] = draw_receipt(tmp_path / "extra.jpg", 9_001)
    assert build(table_of(tmp_path, "extra", [extra]), copy, "--append") == 0
    after = contents(copy)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {COMPLETED, "dataset_info.json"}
    assert manifest_of(copy).version == 4
    assert list(verify(str(copy), workers=1)) == []
    assert list(verify(str(copy), version=2, workers=1)) == []


def test_nothing_new_is_no_version(grown: Path, rows: list[dict], build, tmp_path: Path, capsys):
    before = contents(grown)
    assert build(table_of(tmp_path, "known", rows[:9]), grown, "--append") == 0
    assert "has all inputs already: version 3 is the newest" in capsys.readouterr().out
    assert contents(grown) == before


def test_what_is_there_already(grown: Path, rows: list[dict], build, tmp_path: Path, capsys):
    """A known id with another label or image is rejected, a known image is a duplicate."""
    copy = Path(shutil.copytree(grown, tmp_path / "copy"))
    new = {**rows[0], "id": "new", "image": str(tmp_path / "new.jpg")}
    new["boxes"] = draw_receipt(tmp_path / "new.jpg", 9_002)
    appended = [
        new,
        rows[1],
        {**rows[2], "total": 99.5},
        {**rows[3], "image": new["image"]},
        {**rows[4], "id": "same-pixels"},
        {**rows[5], "id": "same-pixels, other label", "total": 7.25},
    ]
    table = table_of(tmp_path, "appended", appended)
    assert build(table, copy, "--append", "--max-bad-fraction=0.5") == 0
    counts = manifest_of(copy).generations[-1].counts
    assert (counts.inputs, counts.written, counts.known, counts.duplicates) == (6, 1, 1, 2)
    assert counts.quarantined == {"duplicate_id": 2}
    assert counts.duplicates_with_other_labels == 1
    [listing] = (copy / version_file(4, "duplicates")).iterdir()
    pairs = {
        (entry["id"], entry["duplicate_of"])
        for entry in map(json.loads, listing.read_text().splitlines())
    }
    assert pairs == {
        ("same-pixels", rows[4]["id"]),
        ("same-pixels, other label", rows[5]["id"]),
    }
    [rejected] = (copy / version_file(4, "quarantine")).glob("*.jsonl-*")
    messages = [json.loads(line)["message"] for line in rejected.read_text().splitlines()]
    ids = (rows[2]["id"], "other labels or boxes"), (rows[3]["id"], "another image")
    assert sorted(messages) == sorted(
        f"id {id_!r} is in the dataset already, with {other}: give every receipt its own id"
        for id_, other in ids
    )
    assert "known         1 that the dataset had already" in capsys.readouterr().out
    assert list(verify(str(copy), workers=1)) == []
    # The same once more: the duplicates and the rejected are still no records, and are listed anew.
    assert build(table, copy, "--append", "--max-bad-fraction=0.5") == 0
    assert manifest_of(copy).generations[-1].counts.known == 2


def test_a_dry_run_changes_nothing(grown: Path, rows: list[dict], build, tmp_path: Path, capsys):
    before = contents(grown)
    appended = [*rows[:3], {**rows[3], "id": "new", "layout": "new layout"}]
    table = table_of(tmp_path, "plan", appended)
    assert build(table, grown, "--append", "--dry-run") == 0
    printed = capsys.readouterr().out
    assert "known          3 with an id that the dataset has already" in printed
    assert "to write       1, less duplicates and unreadable images" in printed
    assert contents(grown) == before


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--overwrite"], "--append adds to a dataset, --overwrite replaces it: give one of them"),
        (["--quality=80"], "--quality 80: the dataset in OUT was built with 90, and so must be "),
        (["--seed=3"], "--seed 3: the dataset in OUT was built with 0, and so must be what is app"),
        (["--splits=train=1"], "--splits train=1.0: the dataset in OUT was built with train=0.9,"),
        (
            ["--label=total:int"],
            "--label total:int: the dataset in OUT was built with language:category,total:float, ",
        ),
        (["--encoding=raw"], "--encoding raw: the dataset in OUT was built with jpeg, and so must"),
    ],
)
def test_what_shapes_records_is_as_it_was(
    grown: Path, rows: list[dict], build, tmp_path: Path, capsys, options: list[str], sentence: str
):
    table = table_of(tmp_path, "more", rows[:1])
    with pytest.raises(SystemExit) as exit_info:
        build(table, grown, "--append", *options)
    assert exit_info.value.code == 2
    assert sentence.replace("OUT", str(grown)) in capsys.readouterr().err


def test_options_may_be_said_again(grown: Path, rows: list[dict], build, tmp_path: Path):
    again = ("--quality=90", "--seed=0", "--splits=train=0.9,validation=0.1", *LABELS)
    assert build(table_of(tmp_path, "known", rows[:2]), grown, "--append", *again) == 0


def test_there_must_be_a_dataset(rows: list[dict], build, tmp_path: Path, capsys):
    table = table_of(tmp_path, "some", rows[:2])
    with pytest.raises(SystemExit) as exit_info:
        build(table, tmp_path / "none", "--append")
    assert exit_info.value.code == 2
    assert f"{tmp_path / 'none'} holds no finished dataset to append to" in capsys.readouterr().err


def test_any_number_of_workers_gives_the_same_bytes(grown: Path, rows: list[dict], build, tmp_path):
    extra = [{**row, "id": f"again-{row['id']}", "total": 0.5} for row in rows[:7]]
    for number, row in enumerate(extra):
        row["image"] = str(tmp_path / f"{number}.jpg")
        row["boxes"] = draw_receipt(tmp_path / f"{number}.jpg", 9_100 + number)
    table = table_of(tmp_path, "more", [*extra, *rows[:5]])
    made = []
    for workers in (1, 2):
        copy = Path(shutil.copytree(grown, tmp_path / f"copy-{workers}"))
        assert build(table, copy, "--append", f"--workers={workers}") == 0
        made.append(contents(copy))
    assert made[0] == made[1]
    assert len(made[0]) > 40


def test_what_is_excluded_stays_excluded(grown: Path, rows: list[dict], build, tmp_path: Path):
    copy = Path(shutil.copytree(grown, tmp_path / "copy"))
    name = manifest_of(copy).splits["train"].shards[0].name
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    assert len(list(verify(str(copy), exclude=True, workers=1))) == 1
    extra = {**rows[0], "id": "extra", "image": str(tmp_path / "extra.jpg")}
    extra["boxes"] = draw_receipt(tmp_path / "extra.jpg", 9_003)
    assert build(table_of(tmp_path, "extra", [extra]), copy, "--append") == 0
    excluded = read_excluded(str(copy), manifest_of(copy))
    assert excluded.shards == read_excluded(str(copy), version_of(copy, 3)).shards
    assert excluded.shards.keys() == {name}
    assert list(verify(str(copy), workers=1)) == []
