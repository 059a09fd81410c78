"""The reading by TensorFlow Datasets, of right and of wrong descriptions."""

import json
from pathlib import Path

import pytest

pytest.importorskip("tensorflow_datasets")

from benchmarks.interop.results import load
from benchmarks.interop.tfds import main
from schemas.file_names import TFDS_INFO
from schemas.tfds import tfds_files
from tests.support.dataset_factory import LAYOUTS, write_dataset
from tests.support.dataset_files import manifest_of

RECORDS = sum(LAYOUTS.values())


@pytest.fixture(params=["jpeg", "raw", "raw, gray"])
def described(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory with the files for TensorFlow Datasets."""
    raw, gray = "raw" in request.param, "gray" in request.param
    directory = write_dataset(tmp_path / "receipts", raw=raw, gray=gray)
    for name, data in tfds_files(manifest_of(directory)).items():
        (directory / name).write_bytes(data)
    return directory


def test_all_records_and_a_slice(described: Path, tmp_path: Path) -> None:
    assert main([str(tmp_path / "rows.json"), str(described)]) == 0
    rows = load(tmp_path / "rows.json")
    assert [(row.part, row.comparison.images) for row in rows] == [
        ("all records", RECORDS),
        ("[10%:20%]", 3),  # 32 records from 3.2 to 6.4
    ]
    assert [row.comparison.faults for row in rows] == [(), ()]


def test_a_shard_that_is_not_named_is_missed(described: Path, tmp_path: Path) -> None:
    info = json.loads((described / TFDS_INFO).read_text())
    info["splits"][0]["shardLengths"][1] = "0"
    (described / TFDS_INFO).write_text(json.dumps(info))
    assert main([str(tmp_path / "rows.json"), str(described)]) == 0
    everything, part = (row.comparison for row in load(tmp_path / "rows.json"))
    assert everything.read == RECORDS - 8
    assert len(everything.faults) == 8
    assert part.faults
