"""The rows of `make interop`, and the table of them."""

from pathlib import Path

import pytest

pytest.importorskip("psutil")

from benchmarks.interop.__main__ import main
from benchmarks.interop.expected import Comparison, Expected
from benchmarks.interop.results import Result, load, save


def rows(directory: Path, *faults: str) -> list[Result]:
    expected = Expected.of(directory, "train")
    found = Comparison(expected=32, read=31, images=30, boxes=29, labels=28)
    return [Result.of("DALI 2", expected, "all records", found, faults)]


def test_rows_survive_being_written(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    written = rows(directory, "one was not read")
    save(written, path)
    assert load(path) == written
    assert written[0].comparison.faults == ("one was not read",)


def test_one_table_of_all_files(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / name for name in ("a.json", "b.json")]
    for path in paths:
        save(rows(directory), path)
    assert main(list(map(str, paths))) == 0
    header, *lines, end = capsys.readouterr().out.splitlines()
    columns = "reader directory version split part expected read images boxes labels faults"
    assert " ".join(header.split()) == columns
    row = "DALI 2 receipts 1 train all records 32 31 30 29 28 0"
    assert [" ".join(line.split()) for line in lines] == [row, row]
    assert end == "0 faults"


def test_any_fault_is_the_status_and_the_first_are_told(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(rows(directory), tmp_path / "a.json")
    save(rows(directory, *(f"fault {number}" for number in range(7))), tmp_path / "b.json")
    assert main([str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 1
    told = capsys.readouterr().out.splitlines()[3:]
    where = "FAULT: DALI 2, receipts, train, all records: "
    assert told == [where + f"fault {number}" for number in range(5)] + [
        where + "2 more",
        "7 faults",
    ]


def test_a_reader_that_read_nothing(tmp_path: Path) -> None:
    save([], tmp_path / "a.json")
    with pytest.raises(ValueError, match=r"a\.json has no row: nothing was read"):
        main([str(tmp_path / "a.json")])
