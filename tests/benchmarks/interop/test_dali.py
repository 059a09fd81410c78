"""The reading by DALI, by right and by wrong indexes."""

from pathlib import Path

import pytest

pytest.importorskip("nvidia.dali")

from benchmarks.interop.dali import main
from benchmarks.interop.results import load
from schemas.file_names import dali_index_name, shard_name
from tests.support.dataset_factory import LAYOUTS, write_dataset

RECORDS = sum(LAYOUTS.values())


@pytest.mark.parametrize("raw", [False, True], ids=["jpeg", "raw"])
def test_all_records(tmp_path: Path, raw: bool) -> None:
    directory = write_dataset(tmp_path / "receipts", raw=raw, without_boxes=["beta"])
    assert main([str(tmp_path / "rows.json"), str(directory)]) == 0
    [row] = load(tmp_path / "rows.json")
    assert row.comparison.faults == ()
    assert row.comparison.read == RECORDS
    assert row.comparison.images == (0 if raw else RECORDS)
    assert row.comparison.boxes == RECORDS - LAYOUTS["beta"]


def test_a_record_that_an_index_lacks_is_missed(tmp_path: Path) -> None:
    directory = write_dataset(tmp_path / "receipts")
    index = directory / dali_index_name(shard_name("train", 2))
    index.write_text("".join(index.read_text().splitlines(keepends=True)[1:]))
    assert main([str(tmp_path / "rows.json"), str(directory)]) == 0
    [row] = load(tmp_path / "rows.json")
    assert row.comparison.read == RECORDS - 1
    [fault] = row.comparison.faults
    assert fault.endswith("was not read")
