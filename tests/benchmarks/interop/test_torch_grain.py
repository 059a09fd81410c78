"""The check of PyTorch and Grain, with readers that need neither."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from benchmarks.interop import torch_grain
from benchmarks.interop.expected import ID
from benchmarks.interop.results import Result, load
from benchmarks.interop.torch_grain import GLOBAL_BATCH_SIZE, Reader, decoded, main
from pipeline import BatchSampler, Records
from tests.support.dataset_factory import LAYOUTS

STEPS = 5
CASES = ((1.0, 1), (0.3, 3))  # alpha, ranks
RECORDS = sum(LAYOUTS.values())
READ = len(CASES) * STEPS * GLOBAL_BATCH_SIZE


def read(records: Records, sampler: BatchSampler) -> Iterator[list[str]]:
    for positions in sampler:
        yield [records[position][ID] for position in positions]


def read_in_another_order(records: Records, sampler: BatchSampler) -> Iterator[list[str]]:
    return (batch[::-1] for batch in read(records, sampler))


def read_too_few(records: Records, sampler: BatchSampler) -> Iterator[list[str]]:
    return (batch for batch, _ in zip(read(records, sampler), range(STEPS - 1), strict=False))


def read_all(records: Records) -> Iterator[dict[str, Any]]:
    return map(decoded, records)


def read_all_but_one(records: Records) -> Iterator[dict[str, Any]]:
    return (decoded(records[position]) for position in range(1, len(records)))


@pytest.fixture(scope="module")
def ids(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("ids") / "ids.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_grain, "STEPS", STEPS)
        patch.setattr(torch_grain, "CASES", CASES)
        assert main(["expect", str(path), str(directory)]) == 0
        patch.delitem(sys.modules, "tensorflow")  # as in the environment of the second step
        yield path


def check(
    directory: Path, ids: Path, monkeypatch: pytest.MonkeyPatch, **functions: Any
) -> list[Result]:
    given = {"batches": read, "records": read_all} | functions
    reader = Reader(title="NumPy", distribution="numpy", **given)
    monkeypatch.setattr(torch_grain, "_READERS", {"grain": reader})
    results = ids.with_name("rows.json")
    assert main(["grain", str(ids), str(directory), "--results", str(results)]) == 0
    return load(results)


def test_all_records_and_every_batch_of_every_rank(
    directory: Path, ids: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, batches = (row.comparison for row in check(directory, ids, monkeypatch))
    assert everything.faults == batches.faults == ()
    assert everything.expected == everything.images == everything.boxes == RECORDS
    assert batches.expected == batches.read == READ


@pytest.mark.parametrize(
    ("reader", "wrong", "missing"),
    [(read_in_another_order, STEPS, 0), (read_too_few, 1, READ // STEPS)],
)
def test_wrong_batches(
    directory: Path,
    ids: Path,
    monkeypatch: pytest.MonkeyPatch,
    reader: Any,
    wrong: int,
    missing: int,
) -> None:
    _, batches = (row.comparison for row in check(directory, ids, monkeypatch, batches=reader))
    assert len(batches.faults) == wrong * sum(ranks for _, ranks in CASES)
    assert batches.faults[0].startswith(f"alpha 1.0, 1 ranks, rank 0, step {STEPS - wrong}: [")
    assert batches.expected - batches.read == missing


def test_a_record_that_is_missing(
    directory: Path, ids: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = check(directory, ids, monkeypatch, records=read_all_but_one)
    [fault] = rows[0].comparison.faults
    assert fault.endswith("was not read")


def test_tensorflow_must_not_be_imported(
    directory: Path, ids: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", torch_grain)
    with pytest.raises(SystemExit, match="TensorFlow was imported, and should not be needed"):
        check(directory, ids, monkeypatch)


def test_rows_need_a_file(ids: Path, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["grain", str(ids), str(directory)])
    assert "grain needs --results" in capsys.readouterr().err
