"""Verify names every fault by file, record and byte offset."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.storage import files
from beam_jobs.verify import main, verify
from schemas.excluded import Excluded
from schemas.file_names import COMPLETED, dali_index_name
from schemas.versions import Versions
from tests.support.dataset_files import (
    EXCLUDED,
    INDEX,
    MANIFEST,
    SHARD,
    STATISTICS,
    change_manifest,
    flip,
    index_of,
    manifest_of,
    offset_of,
    write_manifest,
)
from tests.support.receipts import contents

pytestmark = pytest.mark.slow


def test_valid_directory(dataset: Path, capsys):
    assert main([str(dataset), "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert printed == (
        f"{dataset} is valid: 44 records in 8 shards, 7 layouts, each within one record of its "
        "fair share in every shard\n"
    )


def test_flipped_byte_is_named_by_file_record_and_offset(copy: Path, capsys):
    index = index_of(copy)
    flip(copy / SHARD, offset_of(copy, 3) + 200)
    assert main([str(copy), "--quiet", "--workers=1"]) == 1
    printed = capsys.readouterr()
    assert (
        f"{copy / SHARD}, record 3 at byte {index.offset[3]}: checksum of the record's bytes is "
        f"wrong (id {index.id(3)!r})\n"
    ) in printed.out
    assert f"{copy / SHARD}: has another checksum than in the manifest\n" in printed.out
    assert printed.err == f"{copy} has 2 faults: --exclude leaves out 1 damaged record\n"
    assert not (copy / EXCLUDED).exists()


def without_last_layout(values: dict) -> None:
    """Takes the last layout, which then has no record, out of the vocabulary."""
    values["vocabularies"]["layout"].pop()
    for split in values["generations"][0]["splits"].values():
        split["category_counts"]["layout"].pop()


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        pytest.param(
            lambda d: (d / COMPLETED).unlink(),
            "COMPLETED: is not there: the dataset is not finished, build it again",
            id="not completed",
        ),
        pytest.param(
            lambda d: (d / COMPLETED).write_bytes(Versions.first(b"another").to_bytes()),
            "manifest.json: does not match COMPLETED: one of the two is damaged, or another "
            "version of tillroll wrote them; restore both from a copy, or build the dataset again",
            id="completed for another",
        ),
        pytest.param(
            lambda d: (d / COMPLETED).write_text("{}"),
            "COMPLETED: not a tillroll-versions file",
            id="completed is broken",
        ),
        pytest.param(
            lambda d: (d / "features.json").write_text("{}"),
            "features.json: is not that of version 1",
            id="other features for TFDS",
        ),
        pytest.param(
            lambda d: (d / "dataset_info.json").unlink(),
            "dataset_info.json: can't be read",
            id="no information for TFDS",
        ),
        pytest.param(
            lambda d: flip(d / dali_index_name(SHARD), 0),
            f"{dali_index_name(SHARD)}: has another checksum than in the manifest",
            id="index for DALI is damaged",
        ),
        pytest.param(
            lambda d: change_manifest(
                d, lambda v: v["generations"][0]["build_options"].pop("image")
            ),
            "manifest.json: has build options that don't tell how images are stored",
            id="nothing about images",
        ),
        pytest.param(
            lambda d: write_manifest(d, "{}"),
            "manifest.json: not a tillroll-dataset file",
            id="no manifest",
        ),
        pytest.param(
            lambda d: change_manifest(d, lambda v: v["generations"][0]["counts"].update(inputs=99)),
            "manifest.json: damaged tillroll-dataset file: records were lost or "
            "made up: 99 inputs, but 44 written",
            id="counts do not add up",
        ),
        pytest.param(
            lambda d: change_manifest(d, lambda v: v["vocabularies"]["layout"].pop()),
            "manifest.json: damaged tillroll-dataset file: split 'train' counts values of "
            "the categories",
            id="vocabulary is short",
        ),
        pytest.param(
            lambda d: change_manifest(d, without_last_layout),
            "manifest.json: has 6 values of layout, receipts-train-00003.index.npz has "
            "positions beyond them",
            id="vocabulary and counts are short",
        ),
        pytest.param(lambda d: (d / SHARD).unlink(), f"{SHARD}: can't be read", id="shard is gone"),
        pytest.param(
            lambda d: (d / SHARD).write_bytes((d / SHARD).read_bytes()[:-9]),
            ": file ends inside a record",
            id="shard is cut",
        ),
        pytest.param(
            lambda d: (d / SHARD).write_bytes((d / SHARD).read_bytes() + b"12345"),
            f"{SHARD}: holds 5 bytes after the last record of its index",
            id="shard is longer",
        ),
        pytest.param(
            lambda d: (d / INDEX).write_bytes(b"PK"),
            f"{INDEX}: has another checksum than in the manifest",
            id="index is broken",
        ),
        pytest.param(
            lambda d: shutil.copy(d / INDEX.replace("00002", "00001"), d / INDEX),
            f"{INDEX}: has another checksum than in the manifest",
            id="index of another shard",
        ),
        pytest.param(
            lambda d: shutil.copy(d / SHARD, d / "receipts-train-00007.tfrecord"),
            "receipts-train-00007.tfrecord: is not in any manifest",
            id="stale shard",
        ),
        pytest.param(
            lambda d: (d / STATISTICS).write_bytes(b"\xff\xff"),
            "statistics.pb: has 2 bytes, the manifest says ",
            id="statistics are broken",
        ),
        pytest.param(
            lambda d: (d / EXCLUDED).write_text("{}"),
            "excluded.json: not a tillroll-excluded file",
            id="excluded is broken",
        ),
        pytest.param(
            lambda d: (d / EXCLUDED).write_text(Excluded(dataset_digest="ab").to_json()),
            "excluded.json: belongs to the dataset with digest ab, the manifest beside it has ",
            id="excluded from another",
        ),
        pytest.param(
            lambda d: change_manifest(
                d,
                lambda v: v["generations"][0]["splits"]["train"]["category_counts"].update(
                    layout=[0] * 7
                ),
            ),
            "manifest.json: layout counts of train differ from its records",
            id="counts of layouts",
        ),
    ],
)
def test_names_the_fault(copy: Path, capsys, harm: Callable[[Path], object], sentence: str):
    harm(copy)
    assert main([str(copy), "--quiet", "--workers=1"]) == 1
    assert sentence in capsys.readouterr().out


def test_unfair_shard_is_a_fault(copy: Path, capsys):
    """Two shards that swap their names are whole, but not what was dealt."""

    def swap(values: dict) -> None:
        shards = values["generations"][0]["splits"]["train"]["shards"]
        shards[0], shards[3] = shards[3], shards[0]

    change_manifest(copy, swap)
    assert main([str(copy), "--quiet", "--workers=1"]) == 1
    assert "its fair share is" in capsys.readouterr().out
    assert manifest_of(copy).counts.written == 44


def test_reads_shards_and_lists_in_pieces(dataset: Path, monkeypatch: pytest.MonkeyPatch):
    """Only the manifest, COMPLETED and the small files beside shards are read as a whole."""
    read_range, pieces = files.read_range, set()

    def record(path: str, offset: int, length: int) -> bytes:
        if length == 5000:
            pieces.add(Path(path).name)
        else:
            assert path.endswith(at_once)
        return read_range(path, offset, length)

    at_once = (".npz", ".idx", ".summary.json", MANIFEST, COMPLETED)
    at_once += ("features.json", "dataset_info.json")
    monkeypatch.setattr("beam_jobs.storage.checksums._PIECE_BYTES", 5000)
    monkeypatch.setattr(files, "read_range", record)
    assert list(verify(str(dataset), workers=1)) == []
    assert pieces == {Path(name).name for name in contents(dataset) if not name.endswith(at_once)}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["/data", "--workers=0"], "--workers must be at least 1, got 0"),
        (["/data", "--worker=1"], "unknown argument --worker"),
        (["ftp://host/data"], "Unable to get filesystem from specified path"),
    ],
)
def test_errors_of_the_command(capsys, arguments: list[str], sentence: str):
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_version_that_is_not_there(dataset: Path, capsys):
    with pytest.raises(SystemExit) as ended:
        main([str(dataset), "--version=9"])
    assert ended.value.code == 2
    assert f"{dataset}: there is no version 9: choose one of 1\n" in capsys.readouterr().err


def test_help_says_what_exclude_does(capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["--help"])
    assert exit_info.value.code == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "--exclude list damaged records in DIRECTORY/versions/*/excluded.json" in words
