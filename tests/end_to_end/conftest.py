"""Fixtures of commands that run from end to end."""

from pathlib import Path

import pytest

from tests.support.grown import LABELS, LAYOUTS, table_of
from tests.support.receipts import read_table, write_receipts


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """Rows of 65 receipts, most of 8 shops, with mixed layouts of which "aral" comes late."""
    table = write_receipts(tmp_path_factory.mktemp("rows"), LAYOUTS)
    rows = read_table(table)
    for number, row in enumerate(rows):
        row["image"] = str(table.parent / row["image"])
        row["group"] = f"shop-{number % 12}" if number % 3 else ""
    mixed = [rows[number * 23 % len(rows)] for number in range(len(rows))]
    return sorted(mixed, key=lambda row: row["layout"] == "aral")


@pytest.fixture(scope="session")
def grown(rows: list[dict], build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of three versions; its parts overlap, and the last has a duplicate of the first."""
    folder = tmp_path_factory.mktemp("grown")
    parts = (rows[:30], rows[25:50], [*rows[50:], {**rows[0], "id": "twin"}])
    for number, part in enumerate(parts):
        table = table_of(folder, f"part-{number}", part)
        options = ("--append",) if number else LABELS
        assert build(table, folder / "out", "--shards=2", *options) == 0
    return folder / "out"
