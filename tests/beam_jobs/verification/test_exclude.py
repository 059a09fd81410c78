"""Damaged records, and no others, are listed in excluded.json."""

import hashlib
import json
from pathlib import Path

import google_crc32c
import pytest

pytest.importorskip("apache_beam")

import beam_jobs.verification.exclude
from beam_jobs.verify import main
from schemas.example import decode_example, encode_example
from schemas.excluded import Excluded
from tests.support.dataset_files import (
    EXCLUDED,
    INDEX,
    MANIFEST,
    SHARD,
    change_shard,
    entry,
    flip,
    index_of,
    manifest_of,
    offset_of,
    payload_of,
    replace_payload,
    write_manifest,
)
from tests.support.receipts import contents

pytestmark = pytest.mark.slow


def test_exclude_leaves_out_damaged_records_and_no_others(copy: Path, capsys):
    """Payload, then a length, in two runs; then valid, though the shard's checksum is wrong."""
    index = index_of(copy)
    valid = (
        f"{copy} is valid: 44 records in 8 shards, 7 layouts, each within one record of its fair "
        "share in every shard\n"
    )

    def excluded(record: int, message: str) -> str:
        place = f"{copy / SHARD}, record {record} at byte {index.offset[record]}"
        return f"excluded {place}: {message} (id {index.id(record)!r})\n"

    flip(copy / SHARD, offset_of(copy, 3) + 200)
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 0
    assert capsys.readouterr().out == (
        excluded(3, "checksum of the record's bytes is wrong")
        + valid
        + f"1 of these records is excluded: {copy / EXCLUDED} says why\n"
    )

    flip(copy / SHARD, offset_of(copy, 1))
    harmed = contents(copy)
    assert main([str(copy), "--quiet", "--workers=1"]) == 1
    printed = capsys.readouterr()
    place = f"{copy / SHARD}, record 1 at byte {index.offset[1]}"
    assert printed.out == (
        f"{place}: checksum of the record's length is wrong (id {index.id(1)!r})\n"
    )
    assert printed.err == f"{copy} has 1 fault: --exclude leaves out 1 damaged record\n"

    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 0
    last_line = f"2 of these records are excluded: {copy / EXCLUDED} says why\n"
    assert capsys.readouterr().out == (
        excluded(1, "checksum of the record's length is wrong") + valid + last_line
    )
    before = contents(copy)
    assert {name for name in before if before[name] != harmed[name]} == {EXCLUDED}
    assert json.loads(before[EXCLUDED]) == {
        "format": "tillroll-excluded",
        "format_version": 1,
        "dataset_digest": manifest_of(copy).digest,
        "shards": {
            SHARD: [
                entry(copy, 1, "checksum of the record's length is wrong").__dict__,
                entry(copy, 3, "checksum of the record's bytes is wrong").__dict__,
            ]
        },
    }
    assert main([str(copy), "--quiet", "--workers=1"]) == 0
    assert capsys.readouterr().out == valid + last_line
    assert contents(copy) == before


def test_exclude_says_what_it_cannot_exclude(copy: Path, capsys):
    """A damaged index stands; a damaged record of another shard is excluded all the same."""
    flip(copy / INDEX, (copy / INDEX).stat().st_size // 2)
    other = "receipts-train-00000.tfrecord"
    flip(copy / other, 200)
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 1
    printed = capsys.readouterr()
    standing, excluded = printed.out.splitlines()
    assert standing == f"{copy / INDEX}: has another checksum than in the manifest"
    assert excluded.startswith(f"excluded {copy / other}, record 0 at byte 0: checksum of the ")
    assert printed.err == (
        f"{copy} has 1 fault that can't be excluded: restore the files named from a copy, or build "
        "the dataset again\n"
    )
    excluded = Excluded.from_json((copy / EXCLUDED).read_text(), manifest_of(copy))
    assert (len(excluded), excluded.positions(other)) == (1, (0,))


def test_exclusions_that_can_not_be_written_are_no_exclusions(copy: Path, capsys, monkeypatch):
    def refuse(path: str, data: bytes) -> None:
        raise PermissionError(f"{path} is on a read-only disk")

    flip(copy / SHARD, 200)
    monkeypatch.setattr(beam_jobs.verification.exclude.files, "write", refuse)
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"error: {copy / EXCLUDED} could not be written, so nothing more is exc" in printed.err
    assert "is on a read-only disk" in printed.err


@pytest.mark.parametrize("sealed", [True, False])
def test_a_damaged_vocabulary_costs_no_record(copy: Path, capsys, sealed: bool):
    """One byte of the manifest is wrong: all shards are as the build wrote them."""
    text = (copy / MANIFEST).read_text()
    assert text.count('"alpha"') == 1
    text = text.replace('"alpha"', '"alphb"')
    if sealed:
        write_manifest(copy, text)
    else:
        (copy / MANIFEST).write_text(text)
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 1
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    if not sealed:
        assert lines.pop(0).startswith(f"{copy / MANIFEST}: does not match COMPLETED: one of the ")
    assert len(lines) == 6  # two shards have no record of this layout
    assert all(
        line.startswith(f"{copy / MANIFEST}: contradicts the undamaged shard receipts-")
        and "says layout 'alpha', but receipt/layout_id 0 is 'alphb'" in line
        for line in lines
    ), lines
    assert printed.err == (
        f"{copy} has {6 + (not sealed)} faults that can't be excluded: restore the files "
        "named from a copy, or build the dataset again\n"
    )
    assert not (copy / EXCLUDED).exists()


def test_nothing_is_excluded_by_a_manifest_that_can_not_be_trusted(copy: Path, capsys):
    """A damaged record is named, and is excluded once the manifest is restored."""
    whole = (copy / MANIFEST).read_bytes()
    flip(copy / SHARD, 200)
    (copy / MANIFEST).write_bytes(whole + b"\n")
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 1
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{copy / MANIFEST}: does not match COMPLETED: ")
    assert second == f"{copy / SHARD}: has another checksum than in the manifest"
    assert third.startswith(f"{copy / SHARD}, record 0 at byte 0: checksum of the record's bytes ")
    assert not (copy / EXCLUDED).exists()
    (copy / MANIFEST).write_bytes(whole)
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 0
    assert (copy / EXCLUDED).exists()


def test_a_damaged_list_of_exclusions_is_not_replaced(copy: Path, capsys):
    (copy / EXCLUDED).write_text("{}")
    flip(copy / SHARD, 200)
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{copy / EXCLUDED}: not a tillroll-excluded file: ")
    assert lines[-1].startswith(f"{copy / SHARD}, record 0 at byte 0: checksum of ")
    assert (copy / EXCLUDED).read_text() == "{}"


def test_a_rebuild_takes_the_exclusions_away(copy: Path, dataset: Path, table: Path, build):
    """Even one of the same digest: its records are whole again."""
    excluded = Excluded(dataset_digest=manifest_of(copy).digest)
    text = excluded.adding(SHARD, [entry(copy, 3)]).to_json()
    (copy / EXCLUDED).write_text(text)
    labels = ("--label", "total:float", "--label", "language:category")
    assert build(table, copy, "--shards", "4", *labels, "--overwrite") == 0
    assert contents(copy) == contents(dataset)


def store_image(directory: Path, record: int, encoded: bytes) -> None:
    """Makes a record as if the build had stored these bytes, as many as before, as its image."""
    features = manifest_of(directory).features
    values = decode_example(features, payload_of(directory, record))
    values["image/encoded"] = encoded
    values["image/key/sha256"] = hashlib.sha256(encoded).hexdigest()
    replace_payload(directory, record, encode_example(features, values))
    crc32c = google_crc32c.value((directory / SHARD).read_bytes())
    change_shard(directory, crc32c=crc32c)


def image_of(directory: Path, record: int) -> bytes:
    values = decode_example(manifest_of(directory).features, payload_of(directory, record))
    encoded = values["image/encoded"]
    assert isinstance(encoded, bytes)
    return encoded


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (b"\xff\xc0", b"\xff\xc3", "lossless JPEG file: only baseline, extended and progressive "),
        (b"\xff\xd9", b"\xff\x00", "JPEG file without an end marker (FFD9)"),
    ],
)
def test_images_that_tensorflow_can_not_decode_are_excluded(
    copy: Path, capsys, old: bytes, new: bytes, sentence: str
):
    """They are damaged although every checksum is right."""
    encoded = image_of(copy, 3)
    assert encoded.count(old) == 1
    store_image(copy, 3, encoded.replace(old, new))
    assert main([str(copy), "--quiet", "--workers=1"]) == 1
    printed = capsys.readouterr()
    place = f"{copy / SHARD}, record 3 at byte {offset_of(copy, 3)}"
    assert printed.out.startswith(f"{place}: {sentence}")
    assert printed.err == f"{copy} has 1 fault: --exclude leaves out 1 damaged record\n"
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 0
    assert main([str(copy), "--quiet", "--workers=1"]) == 0
    excluded = Excluded.from_json((copy / EXCLUDED).read_text(), manifest_of(copy))
    assert excluded.positions(SHARD) == (3,)
