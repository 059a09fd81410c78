"""Helpers of the comparison of engines: how rows become speeds, and which folders are equal."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("psutil")

from benchmarks.engines.__main__ import _add_speed
from benchmarks.engines.builds import equal_files


def test_speeds_are_beside_the_local_runner_with_as_many_slots():
    table: list[tuple[str, int, float, float]] = [
        # engine, slots, seconds, speed
        ("local runner", 1, 160.0, 1.0),
        ("Flink 1.20.3", 1, 150.0, 1.07),
        ("local runner", 2, 80.0, 1.0),
        ("Flink 1.20.3", 2, 100.0, 0.8),
        ("prism runner", 2, 120.0, 0.67),
        ("Spark 3.5.7", 2, 0.0, 0.0),  # its build failed
    ]
    rows: list[dict[str, Any]] = [
        {"engine": engine, "slots": slots, "seconds": seconds}
        for engine, slots, seconds, _ in table
    ]
    _add_speed(rows)
    assert [(*row.values(),) for row in rows] == table


FILES = {"a": b"one", "below/b": b"two", "below/empty": b""}


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        (FILES, True),
        ({**FILES, "below/b": b"tow"}, False),  # as long
        ({**FILES, "below/b": b"two!"}, False),
        ({**FILES, "c": b""}, False),
        ({"a": b"one", "below/b": b"two"}, False),
        ({"a": b"one", "b": b"two", "empty": b""}, False),
        ({}, False),
    ],
)
def test_equal_files(tmp_path: Path, other: dict[str, bytes], equal: bool):
    one, two = write(tmp_path / "one", FILES), write(tmp_path / "two", other)
    assert equal_files(one, two) is equal
    assert equal_files(two, one) is equal


def write(folder: Path, contents: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, data in contents.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return folder
