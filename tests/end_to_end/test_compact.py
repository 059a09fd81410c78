"""All generations of a dataset as one."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs import options
from beam_jobs.compact import main
from beam_jobs.verify import verify
from beam_jobs.writing import shards
from schemas.file_names import COMPLETED, statistics_name
from schemas.index import RecordIndex
from schemas.raw_pixels import are_aligned
from tests.support.dataset_files import manifest_of, records_of
from tests.support.grown import table_of
from tests.support.receipts import contents, draw_receipt

NEWEST = {COMPLETED, "dataset_info.json"}


def frames(directory: Path) -> dict[str, tuple[str, bytes]]:
    """Split and bytes of each record of the newest version, by id."""
    found = {}
    for split, part in manifest_of(directory).splits.items():
        for shard in part.shards:
            data = (directory / shard.name).read_bytes()
            index = RecordIndex.from_bytes((directory / shard.index_name).read_bytes())
            places = zip(index.ids(), index.offset.tolist(), index.length.tolist(), strict=True)
            found |= {key: (split, data[at : at + length]) for key, at, length in places}
    return found


@pytest.fixture(scope="module")
def compacted(grown: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = Path(shutil.copytree(grown, tmp_path_factory.mktemp("compacted") / "out"))
    assert main([str(directory), "--workers=1"]) == 0
    return directory


def test_records_keep_their_bytes_and_splits(grown: Path, compacted: Path):
    assert frames(compacted) == frames(grown)
    before, after = contents(grown), contents(compacted)
    assert {name for name in before if after[name] != before[name]} == NEWEST
    old, new = manifest_of(grown), manifest_of(compacted)
    assert new.version == old.version + 1
    assert new.vocabularies == old.vocabularies
    assert new.counts == old.counts
    listings = {name: one for name, one in old.checksums.items() if "duplicates" in name}
    assert listings
    assert new.checksums.items() >= listings.items()


def test_statistics_of_generations_add_up_to_those_of_all_records(grown: Path, compacted: Path):
    merged = (grown / statistics_name(3)).read_bytes()
    assert merged == (compacted / statistics_name(4)).read_bytes()
    assert merged != (grown / statistics_name(2)).read_bytes()


def test_every_layout_is_evenly_spread_again(compacted: Path):
    (generation,) = manifest_of(compacted).generations
    assert {len(split.shards) for split in generation.splits.values()} == {2}
    assert list(verify(str(compacted), workers=1)) == []


def test_any_number_of_workers_gives_the_same_bytes(grown: Path, compacted: Path, tmp_path: Path):
    copy = Path(shutil.copytree(grown, tmp_path / "copy"))
    assert main([str(copy), "--workers=2"]) == 0
    assert contents(copy) == contents(compacted)


@pytest.mark.parametrize("quiet", [True, False])
def test_a_bar_is_shown_unless_it_is_quiet(grown: Path, tmp_path: Path, capsys, quiet: bool):
    copy = Path(shutil.copytree(grown, tmp_path / "copy"))
    assert main([str(copy), "--workers=1", *(["--quiet"] if quiet else [])]) == 0
    assert ("reading the indexes: " in capsys.readouterr().err) is not quiet


def test_one_generation_is_dealt_only_to_other_shards(compacted: Path, tmp_path: Path, capsys):
    before = contents(compacted)
    assert main([str(compacted), "--workers=1"]) == 0
    assert "its records are one generation already" in capsys.readouterr().out
    assert contents(compacted) == before
    copy = Path(shutil.copytree(compacted, tmp_path / "copy"))
    assert main([str(copy), "--shards=train=4,validation=1", "--workers=1"]) == 0
    newest = manifest_of(copy)
    assert [len(split.shards) for split in newest.splits.values()] == [4, 1]
    assert newest.build_options["shards"] == {"train": 4, "validation": 1}
    assert frames(copy) == frames(compacted)
    assert main([str(copy), "--shard-size-mb=1", "--workers=1"]) == 0
    assert [len(split.shards) for split in manifest_of(copy).splits.values()] == [1, 1]


def test_raw_pixels_of_an_older_version_are_aligned(
    rows: list[dict], build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out, raw = tmp_path / "out", ("--encoding=raw", "--raw-size=48x32", "--shards=2")
    with monkeypatch.context() as older:
        older.setattr(shards, "align_pixels", lambda serialized: serialized)
        older.setattr(options, "pixels_form", lambda encoding: {})
        assert build(table_of(tmp_path, "first", rows[:20]), out, *raw) == 0
    assert not are_aligned(manifest_of(out))
    assert build(table_of(tmp_path, "second", rows[20:30]), out, "--append") == 0
    assert not are_aligned(manifest_of(out))
    pixels = pixels_of(out)
    assert main([str(out), "--workers=1"]) == 0
    assert are_aligned(manifest_of(out))
    assert pixels_of(out) == pixels
    assert list(verify(str(out), workers=1)) == []
    assert main([str(out), "--workers=1"]) == 0  # nothing is left to do
    assert manifest_of(out).version == 3


def pixels_of(directory: Path) -> dict[str, bytes]:
    splits = [records_of(directory, split) for split in manifest_of(directory).splits]
    records = [record for split in splits for shard in split for record in shard]
    return {record["image/source_id"]: record["image/encoded"] for record in records}


def test_the_next_build_appends_to_it(compacted: Path, build, rows: list[dict], tmp_path: Path):
    copy = Path(shutil.copytree(compacted, tmp_path / "copy"))
    extra = {**rows[0], "id": "extra", "image": str(tmp_path / "extra.jpg")}
    extra["boxes"] = draw_receipt(tmp_path / "extra.jpg", 9_002)
    assert build(table_of(tmp_path, "extra", [*rows[:9], extra]), copy, "--append") == 0
    newest = manifest_of(copy)
    assert [one.version for one in newest.generations] == [4, 5]
    assert newest.generations[-1].counts.known == 9
    assert list(verify(str(copy), workers=1)) == []


def test_a_failed_compaction_leaves_the_dataset(grown: Path, tmp_path: Path, capsys):
    copy = Path(shutil.copytree(grown, tmp_path / "copy"))
    shard = manifest_of(copy).splits["train"].shards[0].name
    data = bytearray((copy / shard).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / shard).write_bytes(data)
    before = contents(copy)
    assert main([str(copy), "--workers=1"]) == 1
    error = capsys.readouterr().err
    assert f"{copy / shard}" in error
    assert "Traceback" not in error
    left = contents(copy)
    assert {name for name in before if left[name] != before[name]} == set()


def test_damaged_records_are_not_dealt(grown: Path, tmp_path: Path, capsys):
    copy = Path(shutil.copytree(grown, tmp_path / "copy"))
    name = manifest_of(copy).splits["train"].shards[0].name
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    assert len(list(verify(str(copy), exclude=True, workers=1))) == 1
    with pytest.raises(SystemExit):
        main([str(copy), "--workers=1"])
    assert "lists damaged records (1), whose bytes" in capsys.readouterr().err


def test_nonsense(tmp_path: Path, grown: Path, capsys):
    for arguments, sentence in (
        ([str(tmp_path / "none")], "holds no finished dataset"),
        ([str(grown), "--shards=none"], "--shards takes a number or NAME=N"),
        ([str(grown), "--shards=test=2"], "the splits are train, validation"),
        ([str(grown), "--shard-size-mb=0"], "--shard-size-mb must be at least 1, got 0"),
        ([str(grown), "--workers=0"], "--workers must be at least 1, got 0"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert sentence in capsys.readouterr().err


def test_the_work_of_a_build_is_kept(grown: Path, build, rows, tmp_path: Path, capsys):
    copy = Path(shutil.copytree(grown, tmp_path / "copy"))
    bad = {**rows[0], "id": "gone", "image": str(tmp_path / "gone.jpg")}
    table = table_of(tmp_path, "bad", [{**rows[1], "id": "again", "total": 1.5}, bad])
    assert build(table, copy, "--append", "--max-bad-fraction=0") == 1
    with pytest.raises(SystemExit):
        main([str(copy), "--workers=1"])
    assert "holds the work of a build that has not ended" in capsys.readouterr().err
    shutil.rmtree(copy / "_staging")
    assert main([str(copy), "--workers=1"]) == 0
