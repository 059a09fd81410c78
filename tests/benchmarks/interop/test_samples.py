"""The tables of `make interop`."""

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.interop import samples

ROWS = [
    {"id": str(number), "layout": "aldi" if number % 3 else f"shop{number % 5}", "total": 1.5}
    for number in range(300)
]


def test_samples_share_no_receipt():
    tables = samples.samples(ROWS)
    first, second = ({row["id"] for row in tables[name]} for name in ("first", "second"))
    assert first.isdisjoint(second)
    assert first | second == {row["id"] for row in ROWS}
    assert len(first) == len(second) == 150


def test_thirds_share_no_receipt():
    tables = samples.samples(ROWS)
    thirds = [{row["id"] for row in tables[f"third_{number}"]} for number in (1, 2, 3)]
    assert [len(third) for third in thirds] == [100, 100, 100]
    assert set.union(*thirds) == {row["id"] for row in ROWS}


def test_the_other_has_shifted():
    tables = samples.samples(ROWS)
    assert {row["total"] for row in tables["shifted"]} == {4.5}
    before, after = (
        Counter(row["layout"] == "aldi" for row in tables[name]) for name in ("second", "shifted")
    )
    assert after[True] == before[True] > 0
    assert after[False] == -(-before[False] // 3) > 0
    assert {row["id"] for row in tables["shifted"]} < {row["id"] for row in tables["second"]}


def test_tables_lie_beside_the_receipts(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    table = tmp_path / "receipts.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert samples.main([str(table)]) == 0
    printed = capsys.readouterr().out
    for name, rows in samples.samples(ROWS).items():
        lines = (tmp_path / f"{name}.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == rows
        assert f"{name}.jsonl: {len(rows)} receipts" in printed
