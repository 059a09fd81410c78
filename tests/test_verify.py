"""Verify names every fault by file, record and byte offset."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.verify import main
from schemas.index import RecordIndex
from schemas.manifest import COMPLETED, MANIFEST, STATISTICS, Manifest

SHARD = "receipts-train.tfrecord-00002-of-00004"
INDEX = "receipts-train.index-00002-of-00004"


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dataset, tmp_path / "copy"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def offset_of(directory: Path, record: int) -> int:
    return int(RecordIndex.from_bytes((directory / INDEX).read_bytes()).offset[record])


def change_manifest(directory: Path, change: Callable[[dict], None]) -> None:
    values = json.loads((directory / MANIFEST).read_text())
    change(values)
    (directory / MANIFEST).write_text(json.dumps(values))


def test_sound_directory(dataset: Path, capsys):
    assert main([str(dataset), "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert printed == (
        f"{dataset} is sound: 44 records in 8 shards, 7 layouts, each within one record of its "
        "fair share in every shard\n"
    )


def test_flipped_byte_is_named_by_file_record_and_offset(copy: Path, capsys):
    index = RecordIndex.from_bytes((copy / INDEX).read_bytes())
    flip(copy / SHARD, offset_of(copy, 3) + 200)
    assert main([str(copy), "--quiet", "--workers=1"]) == 1
    printed = capsys.readouterr()
    assert (
        f"{copy / SHARD}, record 3 at byte {index.offset[3]}: checksum of the record's bytes is "
        f"wrong (id {index.id(3)!r})\n"
    ) in printed.out
    assert f"{copy / SHARD}: has another checksum than in the manifest\n" in printed.out
    assert printed.err == f"{copy} has 2 faults\n"


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        pytest.param(
            lambda d: (d / COMPLETED).unlink(),
            "COMPLETED: is not there: no finished dataset, build it again",
            id="not completed",
        ),
        pytest.param(
            lambda d: (d / COMPLETED).write_text("0" * 64),
            "COMPLETED: belongs to another manifest than the one beside it",
            id="completed for another",
        ),
        pytest.param(
            lambda d: (d / MANIFEST).write_text("{}"),
            "manifest.json: not a tillroll-dataset manifest",
            id="no manifest",
        ),
        pytest.param(
            lambda d: change_manifest(d, lambda v: v["counts"].update(inputs=99)),
            "manifest.json: records were lost or made up: 99 inputs, but 44 written",
            id="counts do not add up",
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
            f"{INDEX}: can't be read",
            id="index is broken",
        ),
        pytest.param(
            lambda d: shutil.copy(d / INDEX.replace("00002-of", "00001-of"), d / INDEX),
            f"{INDEX}: lists records of other shards than 2",
            id="index of another shard",
        ),
        pytest.param(
            lambda d: shutil.copy(d / SHARD, d / "receipts-train.tfrecord-00007-of-00009"),
            "receipts-train.tfrecord-00007-of-00009: is not in the manifest",
            id="stale shard",
        ),
        pytest.param(
            lambda d: (d / STATISTICS).write_bytes(b"\xff\xff"),
            "statistics.pb: can't be read",
            id="statistics are broken",
        ),
        pytest.param(
            lambda d: change_manifest(
                d,
                lambda v: v["splits"]["train"]["category_counts"].update(layout=[0] * 7 + [1][:0]),
            ),
            "manifest.json: layout counts of train are not the records'",
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
        shards = values["splits"]["train"]["shards"]
        shards[0], shards[3] = shards[3], shards[0]

    change_manifest(copy, swap)
    assert main([str(copy), "--quiet", "--workers=1"]) == 1
    assert "its fair share is" in capsys.readouterr().out
    assert Manifest.from_json((copy / MANIFEST).read_text()).counts.written == 44
