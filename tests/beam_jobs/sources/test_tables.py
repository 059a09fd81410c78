"""The tables that a path stands for."""

import os
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.errors import BuildError
from beam_jobs.sources.tables import list_tables


def listed(path: Path) -> list[tuple[str, int]]:
    """Name below the folder of the test and size in bytes of each table."""
    root = Path(*path.parts[: path.parts.index("root") + 1])
    return sorted((os.path.relpath(m.path, root), m.size_in_bytes) for m in list_tables(str(path)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def make(root: Path, *names: str, data: bytes = b"data") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def test_a_file_a_pattern_and_nothing(root: Path) -> None:
    make(root, "t.csv", "part-0.csv", "part-1.csv", "below/part-2.csv")
    assert listed(root / "t.csv") == [("t.csv", 4)]
    assert listed(root / "part-*.csv") == [("part-0.csv", 4), ("part-1.csv", 4)]
    assert listed(root / "gone.csv") == []


def test_a_pattern_matches_no_hidden_file(root: Path) -> None:
    make(root, "t.csv", "._t.csv", ".t.csv")
    assert listed(root / "*.csv") == [("t.csv", 4)]
    assert listed(root / ".t.csv") == [(".t.csv", 4)]


@pytest.mark.parametrize("name", ["pipe.csv", "pipe.jsonl", "pipe.parquet"])
def test_a_pipe_is_no_table(root: Path, name: str) -> None:
    os.mkfifo(root / name)
    with pytest.raises(BuildError) as caught:
        list_tables(str(root / name))
    assert str(caught.value) == f"{root / name} is not a regular file: write its rows to one"


@pytest.mark.parametrize("name", ["x.parquet", "x [1].csv"])
def test_a_folder_as_spark_writes_it_is_its_part_files(root: Path, name: str) -> None:
    make(root / name, "part-0", "part-1.csv.gz", "country=US/part-2.parquet")
    make(root / name, "_SUCCESS", ".part-0.crc", "_temporary/0/part-9", ".x/part-9")
    make(root / name, "part-3", data=b"")  # of a partition without rows
    expected = ["country=US/part-2.parquet", "part-0", "part-1.csv.gz"]
    assert listed(root / name) == [(f"{name}/{part}", 4) for part in expected]
    assert listed(root / f"{name}/") == listed(root / name)


def test_a_part_that_can_t_be_read_is_not_passed_over(root: Path) -> None:
    make(root, "x.parquet/part-0")
    (root / "x.parquet" / "part-1").symlink_to(root / "gone")
    with pytest.raises(BuildError, match=r"part-1 can't be read: .*No such file.*leave it out of"):
        list_tables(str(root / "x.parquet"))
