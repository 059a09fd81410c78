"""Files of the quarantine and of duplicates: bounded in number of entries and in bytes."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from beam_jobs.prepare.prepared_chunk import Rejected
from beam_jobs.prepare.references import hash_words
from beam_jobs.sharding.duplicates import Duplicate
from beam_jobs.storage.checksums import checksum
from beam_jobs.writing import listings
from beam_jobs.writing.listings import ListedFile, WriteDuplicates, WriteQuarantine
from schemas.example import decode_example, encode_example
from schemas.quarantine import REJECTED_FEATURES
from schemas.tfrecord import frame, read_records

_WRITTEN: list[ListedFile] = []

FOLDER = "versions/00001/quarantine"


def collect(file: ListedFile) -> None:
    _WRITTEN.append(file)


def written(values: Sequence[Rejected | Duplicate], lists: beam.PTransform) -> list[ListedFile]:
    """The files that are written, in the order of their names."""
    _WRITTEN.clear()
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:  # runs in this process
        _ = pipeline | beam.Create(values, reshuffle=False) | lists | beam.Map(collect)
    return sorted(_WRITTEN)


def rejected(folder: Path, sizes: list[int]) -> list[Rejected]:
    """References to quarantine records of images of these sizes, in one staging file."""
    frames, values = [], []
    for number, size in enumerate(sizes):
        record = {"id": f"id-{number}", "uri": "", "reason": "corrupt", "message": "", "source": ""}
        frames.append(frame(encode_example(REJECTED_FEATURES, {**record, "bytes": b"x" * size})))
        values.append(
            Rejected(
                id_hash=hash_words(f"id-{number}")[0],
                file=str(folder / "staged"),
                offset=sum(map(len, frames[:-1])),
                length=len(frames[-1]),
                reason="corrupt",
                id=f"id-{number}",
                message="",
            )
        )
    (folder / "staged").write_bytes(b"".join(frames))
    return values


def test_no_file_of_the_quarantine_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Small images, some that would fill a file almost, and one that is larger than a file."""
    monkeypatch.setattr(listings, "_FILE_BYTES", 10_000)
    values = rejected(tmp_path, [10] * 20 + [9_000] * 12 + [50_000])
    found = written(values, WriteQuarantine(str(tmp_path / "out"), FOLDER))
    count = len(found) // 2
    assert [name for name, _ in found] == [
        f"versions/00001/quarantine/rejected.{kind}-{number:05d}-of-{count:05d}"
        for kind in ("jsonl", "tfrecord")
        for number in range(count)
    ]
    ids, per_file = [], []
    for name, expected in found:
        path = tmp_path / "out" / name
        assert checksum(path.read_bytes()) == expected
        if ".tfrecord-" in name:
            with path.open("rb") as file:
                records = [
                    decode_example(REJECTED_FEATURES, data) for _, data in read_records(file)
                ]
            lines = path.with_name(path.name.replace("tfrecord", "jsonl")).read_text().splitlines()
            assert [json.loads(line)["id"] for line in lines] == [each["id"] for each in records]
            assert expected.size_bytes <= 10_000 or len(records) == 1
            ids += [each["id"] for each in records]
            per_file.append(len(records))
    assert sorted(ids) == sorted(each.id for each in values)
    assert all(per_file)
    again = written(values[::-1], WriteQuarantine(str(tmp_path / "again"), FOLDER))
    assert again == found


def test_duplicates_are_bounded_in_number_and_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    values = [
        Duplicate(
            bucket=0,
            key=hash_words(f"id-{number}")[0].to_bytes(8, "little"),
            id=f"id-{number}",
            duplicate_of="y" * 100,
            same_labels=True,
        )
        for number in range(60)
    ]
    monkeypatch.setattr(listings, "_FILE_BYTES", 1500)
    found = written(values, WriteDuplicates(str(tmp_path / "small"), 1))
    assert len(found) > 60 * 150 // 1500
    assert all(each.size_bytes <= 1500 for _, each in found)
    monkeypatch.undo()
    monkeypatch.setattr(listings, "_DUPLICATES_PER_FILE", 20)
    assert len(written(values, WriteDuplicates(str(tmp_path / "few"), 1))) == 3
