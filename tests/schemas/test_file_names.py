"""Names of the files of a dataset directory."""

import pytest

from schemas.file_names import (
    dali_index_name,
    excluded_name,
    index_name,
    is_dataset_file,
    is_index_file,
    is_shard_file,
    least_certain_name,
    lookup_name,
    manifest_name,
    schema_name,
    shard_name,
    shard_number,
    statistics_name,
    summary_name,
    version_file,
)


def test_files_of_a_shard() -> None:
    shard = shard_name("train", 7)
    assert shard == "receipts-train-00007.tfrecord"
    assert index_name(shard) == "receipts-train-00007.index.npz"
    assert lookup_name(shard) == "receipts-train-00007.lookup.npz"
    assert dali_index_name(shard) == "receipts-train-00007.idx"
    assert is_shard_file(shard)
    assert not is_shard_file(index_name(shard))
    assert is_index_file(index_name(shard))
    assert not is_index_file(shard)


@pytest.mark.parametrize("number", [0, 7, 99_999, 100_000, 1_234_567])
def test_the_number_of_a_shard_is_in_its_name(number: int) -> None:
    assert shard_number(shard_name("dev_2", number)) == number


def test_files_of_a_version() -> None:
    assert manifest_name(1) == "versions/00001/manifest.json"
    assert schema_name(12) == "versions/00012/schema.pbtxt"
    assert statistics_name(123_456) == "versions/123456/statistics.pb"
    assert summary_name(1) == "versions/00001/summary.json"
    assert excluded_name(3) == "versions/00003/excluded.json"
    assert least_certain_name(3) == "versions/00003/least_certain.json"


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("COMPLETED", True),
        ("features.json", True),
        ("dataset_info.json", True),
        (manifest_name(1), True),
        (schema_name(2), True),
        (statistics_name(100_000), True),
        (summary_name(1), True),
        (excluded_name(1), True),
        (least_certain_name(1), True),
        (shard_name("dev_2", 0), True),
        (index_name(shard_name("dev_2", 123_456)), True),
        (lookup_name(shard_name("dev_2", 0)), True),
        (dali_index_name(shard_name("dev_2", 123_456)), True),
        (version_file(1, "quarantine/rejected.tfrecord-00000-of-00001"), True),
        (version_file(1, "quarantine/rejected.jsonl-00000-of-00001"), True),
        (version_file(1, "duplicates/duplicates.jsonl-00000-of-00001"), True),
        ("notes.txt", False),
        ("manifest.json", False),
        ("versions/1/manifest.json", False),
        ("versions/00001/notes.txt", False),
        ("completed", False),
        ("excluded.json", False),
        ("receipts-Train-00000.tfrecord", False),
        ("receipts-train-0.tfrecord", False),
        ("receipts-train-00000.tfrecord.bak", False),
        ("receipts-train-00000.tfrecord\n", False),
        ("receipts-train.tfrecord-00000-of-00001", False),
        ("quarantine/rejected.tfrecord-00000-of-00001", False),
        (version_file(1, "quarantine/duplicates.jsonl-00000-of-00001"), False),
        ("", False),
    ],
)
def test_is_dataset_file(name: str, ours: bool) -> None:
    assert is_dataset_file(name) is ours
