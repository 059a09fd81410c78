"""Receipts that are forgotten: gone from every file, and everything else as it was."""

import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.compact import main as compact_main
from beam_jobs.forget import main
from beam_jobs.verify import verify
from beam_jobs.writing.output import read_versions
from schemas.file_names import COMPLETED, statistics_name
from schemas.versions import Versions
from tests.support.dataset_files import manifest_of
from tests.support.grown import LABELS, table_of, truth_of, version_of
from tests.support.receipts import contents, draw_receipt

SECRET = "id-{:04d}-end"  # not a part of any other
IN_TRAIN_OF_2, TWIN_OF, LONELY, BAD = (SECRET.format(number) for number in (40, 2, 58, 900))
TWIN = "twin-of-id-2"
OPTIONS = ("--max-bad-fraction=0.2", "--shards=2")


@pytest.fixture(scope="module")
def grown(rows: list[dict], build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three versions; the first has quarantined inputs, and the second a duplicate of its own.

    Ids and payers are texts that occur nowhere else, and one receipt has a layout of its own.
    """
    folder = tmp_path_factory.mktemp("to-forget")
    named = [
        {**row, "id": SECRET.format(number), "payer": f"payer-{number:04d}-end"}
        for number, row in enumerate(rows)
    ]
    named[58]["layout"] = "shop-of-58"
    bad = [
        {**named[0], "id": SECRET.format(900 + k), "image": "missing.jpg", "payer": f"payer-{k}"}
        for k in range(3)
    ]
    parts = ([*named[:30], *bad], [*named[25:50], {**named[2], "id": TWIN}], named[50:])
    for number, part in enumerate(parts):
        table = table_of(folder, f"part-{number}", part)
        options = ("--append",) if number else (*LABELS, "--label=payer:string")
        assert build(table, folder / "out", *OPTIONS, *options) == 0
    return folder / "out"


@pytest.fixture
def copy(grown: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(grown, tmp_path / "copy"))


def forget(
    directory: Path, *ids: str, options: tuple[str, ...] = ("--workers=1", "--quiet")
) -> int:
    file = directory.parent / "ids.txt"
    file.write_text("".join(f"{id_}\n" for id_ in ids))
    return main([str(directory), "--ids", str(file), *options])


def traces(directory: Path, *needles: bytes) -> dict[str, list[bytes]]:
    """Files that hold one of these bytes."""
    held = {
        name: [needle for needle in needles if needle in data]
        for name, data in contents(directory).items()
    }
    return {name: found for name, found in held.items() if found}


def needles_of(directory: Path, id_: str) -> tuple[bytes, ...]:
    """Bytes by which a record can be found: id, payer, hashes, and the middle of its image."""
    record = truth_of(directory)[id_]
    image = record["image/encoded"]
    middle = image[len(image) // 2 :][:200]
    texts = ("receipt/payer", "image/key/sha256", "image/key/pixels")
    return (middle, id_.encode(), *(record[name].encode() for name in texts))


@pytest.mark.parametrize("id_", [IN_TRAIN_OF_2, TWIN_OF, LONELY])
def test_nothing_of_it_is_left(copy: Path, id_: str, capsys):
    before, needles = truth_of(copy), needles_of(copy, id_)
    assert traces(copy, *needles)
    assert forget(copy, id_) == 0
    assert traces(copy, *needles) == {}
    assert re.search(r"gone\n  records +1; 1 shard was written anew\n", capsys.readouterr().out)
    after = truth_of(copy)
    assert after == {key: record for key, record in before.items() if key != id_}
    assert list(verify(str(copy), workers=1)) == []
    assert manifest_of(copy).counts.forgotten == 1


def test_versions_that_held_it_end_and_the_others_stay(grown: Path, copy: Path, capsys):
    before = contents(copy)
    assert forget(copy, IN_TRAIN_OF_2) == 0
    out = capsys.readouterr().out
    assert "ended      versions 2, 3, with all their files" in out
    assert "untouched  version 1" in out
    versions = read_versions(str(copy))
    assert [one.number for one in versions.versions] == [1, 4]
    assert versions.ended == (2, 3)
    after = contents(copy)
    own = version_of(grown, 1).file_names
    assert {name: after[name] for name in before if name in own} == {
        name: before[name] for name in before if name in own
    }
    # What is known of the inputs that they added stays: version 4 has these inputs, too.
    assert {path.name for path in (copy / "versions/00002").iterdir()} == {"duplicates"}
    assert {path.name for path in (copy / "versions/00003").iterdir()} == {"summary.json"}
    with pytest.raises(ValueError, match="version 2 has ended, as receipts in it had to be forgot"):
        versions.find(2)


def test_only_shards_that_held_it_are_written_anew(copy: Path):
    old = manifest_of(copy)
    assert forget(copy, IN_TRAIN_OF_2) == 0
    new = manifest_of(copy)
    replaced = [
        (before, after)
        for split in old.splits
        for before, after in zip(old.splits[split].shards, new.splits[split].shards, strict=True)
        if before != after
    ]
    [(before, after)] = replaced
    assert after.records == before.records - 1
    assert len(after.forgotten) == 1
    assert not (copy / before.name).exists()


def test_statistics_are_those_of_the_records_that_are_left(copy: Path):
    assert forget(copy, IN_TRAIN_OF_2, LONELY, TWIN_OF) == 0
    version = manifest_of(copy).version
    statistics = (copy / statistics_name(version)).read_bytes()
    assert compact_main([str(copy), "--workers=1"]) == 0  # counts all records anew
    assert (copy / statistics_name(version + 1)).read_bytes() == statistics
    assert list(verify(str(copy), workers=1)) == []


def test_ids_of_categories_hold_and_a_value_that_only_it_had_is_gone(
    copy: Path, rows: list[dict], build, tmp_path: Path
):
    old = manifest_of(copy).vocabularies["layout"]
    at = old.index("shop-of-58")
    assert forget(copy, LONELY) == 0
    new = manifest_of(copy).vocabularies["layout"]
    assert new == (*old[:at], f"forgotten-{at}", *old[at + 1 :])
    assert traces(copy, b"shop-of-58") == {}
    assert not (copy / "versions/00003").exists()
    extra = {**rows[0], "id": "extra", "layout": "shop-of-58", "payer": "p"}
    extra |= {"image": str(tmp_path / "extra.jpg")}
    extra["boxes"] = draw_receipt(tmp_path / "extra.jpg", 9_003)
    assert build(table_of(tmp_path, "extra", [extra]), copy, "--append") == 0
    assert manifest_of(copy).vocabularies["layout"] == (*new, "shop-of-58")
    assert list(verify(str(copy), workers=1)) == []


def test_a_duplicate_no_longer_names_its_record(copy: Path, capsys):
    assert traces(copy, TWIN.encode())
    assert forget(copy, TWIN_OF) == 0
    assert "1 other input was left out as a duplicate of them" in capsys.readouterr().out
    assert manifest_of(copy).counts.duplicates == 1
    listings = {name for name in traces(copy, TWIN.encode()) if "duplicates" in name}
    assert listings == {"versions/00004/duplicates/duplicates.jsonl-00000-of-00001"}
    assert forget(copy, TWIN) == 0
    assert traces(copy, TWIN.encode()) == {}
    assert manifest_of(copy).counts.duplicates == 0
    assert list(verify(str(copy), workers=1)) == []


def test_a_rejected_input_goes_from_the_quarantine(copy: Path):
    assert {name.rpartition("/")[2][:14] for name in traces(copy, BAD.encode())} == {
        "rejected.jsonl",
        "rejected.tfrec",
    }
    digest = manifest_of(copy).digest
    assert forget(copy, BAD) == 0
    assert traces(copy, BAD.encode()) == {}
    counts = manifest_of(copy).counts
    assert (dict(counts.quarantined), counts.forgotten) == ({"file_missing": 2}, 1)
    assert manifest_of(copy).digest == digest  # the records are the same
    assert list(verify(str(copy), workers=1)) == []


def test_all_of_the_quarantine_can_go(copy: Path):
    assert forget(copy, *(SECRET.format(900 + k) for k in range(3))) == 0
    assert not manifest_of(copy).counts.quarantined
    assert not list(copy.rglob("rejected*"))
    assert list(verify(str(copy), workers=1)) == []


def test_ids_that_are_nowhere_are_named(copy: Path, capsys):
    before = contents(copy)
    assert forget(copy, "nobody") == 1
    printed = capsys.readouterr()
    assert printed.out == f"{copy} holds nothing that was to be forgotten: version 3 stays\n"
    assert printed.err == f"nowhere in {copy}: 'nobody'\n"
    assert contents(copy) == before
    assert forget(copy, "nobody", IN_TRAIN_OF_2) == 1
    assert traces(copy, IN_TRAIN_OF_2.encode()) == {}


def test_many_at_once_leave_every_layout_as_it_was_dealt(copy: Path):
    ids = [SECRET.format(number) for number in range(1, 65, 2)]
    assert forget(copy, *ids) == 0
    assert truth_of(copy).keys().isdisjoint(ids)
    assert list(verify(str(copy), workers=1)) == []
    assert forget(copy, *(SECRET.format(number) for number in range(2, 65, 2))) == 0
    assert len(truth_of(copy)) == 1
    assert list(verify(str(copy), workers=1)) == []


def test_any_number_of_workers_gives_the_same_bytes(copy: Path, grown: Path, tmp_path: Path):
    other = Path(shutil.copytree(grown, tmp_path / "other"))
    ids = (IN_TRAIN_OF_2, TWIN_OF, BAD)
    assert forget(copy, *ids) == 0
    assert forget(other, *ids, options=("--workers=2",)) == 0
    assert contents(copy) == contents(other)


def damage(directory: Path) -> str:
    """Damages a record of the newest version, leaves it out, and returns the name of its shard."""
    name = manifest_of(directory).splits["train"].shards[-1].name
    data = bytearray((directory / name).read_bytes())
    data[len(data) // 2] ^= 1
    (directory / name).write_bytes(data)
    assert len(list(verify(str(directory), exclude=True, workers=1))) == 1
    return name


def test_damaged_records_are_given_up(copy: Path, capsys):
    name = damage(copy)
    with pytest.raises(SystemExit):
        compact_main([str(copy), "--workers=1"])
    assert f"beam_jobs.forget {copy} --excluded" in capsys.readouterr().err
    assert main([str(copy), "--excluded", "--workers=1"]) == 0
    assert "1, of which 1 damaged and left out before" in capsys.readouterr().out
    assert not (copy / name).exists()
    assert not list(copy.rglob("excluded.json"))
    assert list(verify(str(copy), workers=1)) == []
    assert compact_main([str(copy), "--workers=1"]) == 0


def test_exclusions_of_other_shards_stay(copy: Path):
    damage(copy)
    assert forget(copy, SECRET.format(3)) == 0
    [excluded] = copy.rglob("excluded.json")
    assert excluded.parent.name == "00004"
    assert list(verify(str(copy), workers=1)) == []


def test_a_damaged_index_hides_nothing(copy: Path, capsys):
    name = manifest_of(copy).splits["train"].shards[0].index_name
    data = bytearray((copy / name).read_bytes())
    data[-200] ^= 1
    (copy / name).write_bytes(data)
    before = contents(copy)
    assert forget(copy, IN_TRAIN_OF_2) == 1
    error = capsys.readouterr().err
    assert (
        f"{copy / name} has another checksum than in the manifest: nothing was forgotten" in error
    )
    left = contents(copy)
    assert {name: left[name] for name in before} == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "there is nothing to forget: give --ids, --excluded, or both"),
        (("--ids=missing.txt",), "--ids missing.txt can't be read"),
        (("--ids=empty.txt",), "--ids empty.txt holds no id: write one on each line"),
    ],
)
def test_errors_of_arguments(copy: Path, arguments, sentence: str, capsys, monkeypatch):
    monkeypatch.chdir(copy.parent)
    (copy.parent / "empty.txt").write_text("\n\n")
    with pytest.raises(SystemExit):
        main([str(copy), *arguments])
    assert sentence in capsys.readouterr().err


def test_a_directory_without_a_dataset_is_refused(tmp_path: Path, capsys):
    (tmp_path / "ids.txt").write_text("a\n")
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--ids", str(tmp_path / "ids.txt")])
    assert "holds no finished dataset" in capsys.readouterr().err


def test_completed_names_what_has_ended(copy: Path):
    assert forget(copy, IN_TRAIN_OF_2) == 0
    assert Versions.from_bytes((copy / COMPLETED).read_bytes()).ended == (2, 3)


@pytest.fixture(scope="module")
def small(rows: list[dict], build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six receipts, and a row of the first that is cut off."""
    folder = tmp_path_factory.mktemp("to-forget-wholly")
    named = [{**row, "id": SECRET.format(number)} for number, row in enumerate(rows[:6])]
    table = table_of(folder, "table", named)
    with table.open("a") as file:
        file.write(f'{{"id": "{named[0]["id"]}", "customer": "Jane Doe 555-1234", \n')
        file.write(f'{{"id": "{named[0]["id"]}0", "customer": "John Roe 555-4321", \n')
    assert build(table, folder / "out", "--max-bad-fraction=0.5", "--shards=2") == 0
    return folder / "out"


def test_a_row_that_could_not_be_parsed_goes_with_its_receipt(small: Path, tmp_path: Path):
    copy = Path(shutil.copytree(small, tmp_path / "copy"))
    id_ = SECRET.format(0)
    assert len(traces(copy, b"Jane Doe")) == 2  # of records and of lines
    assert forget(copy, id_) == 0
    assert traces(copy, b"Jane Doe", f'"{id_}"'.encode(), f'\\"{id_}\\"'.encode()) == {}
    assert len(traces(copy, b"John Roe")) == 2  # of another receipt
    assert list(verify(str(copy), workers=1)) == []


LITTER = (".DS_Store", "._COMPLETED", "Thumbs.db", "desktop.ini", "train/.nfs000000000abc00000001")


def test_files_of_systems_are_in_no_ones_way(small: Path, tmp_path: Path, rows, build, capsys):
    copy = Path(shutil.copytree(small, tmp_path / "copy"))
    for name in LITTER[:4]:
        (copy / name).write_text("x")
    assert forget(copy, SECRET.format(1)) == 0
    held = copy / LITTER[4]
    held.parent.mkdir(exist_ok=True)
    held.write_text("x")
    assert forget(copy, SECRET.format(2)) == 1  # what was forgotten may still be read
    assert f"still holds {LITTER[4]} (1)" in capsys.readouterr().err
    more = table_of(tmp_path, "more", rows[10:14])
    assert build(more, copy, "--append") == 0
    assert compact_main([str(copy), "--workers=1", "--quiet"]) == 0
    assert all((copy / name).exists() for name in LITTER)
    (copy / "README.md").write_text("x")
    capsys.readouterr()
    with pytest.raises(SystemExit):
        forget(copy, SECRET.format(3))
    error = capsys.readouterr().err
    assert "README.md, which no build wrote: move that file away" in error


def test_a_dataset_of_which_everything_is_forgotten(
    small: Path, tmp_path: Path, rows, build, capsys
):
    copy = Path(shutil.copytree(small, tmp_path / "copy"))
    assert forget(copy, *(SECRET.format(number) for number in range(6))) == 0
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_info:
        compact_main([str(copy), "--workers=1", "--quiet", "--shards=1"])
    assert exit_info.value.code == 2
    assert "holds no records to deal: append receipts" in capsys.readouterr().err
    assert list(verify(str(copy), workers=1)) == []
    more = table_of(tmp_path, "more", rows[10:14])
    assert build(more, copy, "--append") == 0
    assert compact_main([str(copy), "--workers=1", "--quiet", "--shards=1"]) == 0
    assert list(verify(str(copy), workers=1)) == []
    assert len(truth_of(copy)) == 4
