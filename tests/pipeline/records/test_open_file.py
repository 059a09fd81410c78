"""Files that stay open: within the limit of the process, and no longer than their reader."""

import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.records import open_file
from pipeline.records.open_file import OpenFiles
from tests.support.descriptors import descriptors


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """200 files, each with its number."""
    paths = [tmp_path / str(number) for number in range(200)]
    for number, path in enumerate(paths):
        path.write_bytes(number.to_bytes(2, "little"))
    return paths


def test_they_are_closed_with_their_reader(paths: list[Path]):
    files = OpenFiles()
    for number, path in enumerate(paths[:20]):
        files.open(number, path)
    assert descriptors(paths[0].parent) == 20
    held = files.open(20, paths[20])
    del files
    assert descriptors(paths[0].parent) == 1
    assert held.read(2, 0) == b"\x14\0"


@pytest.mark.parametrize(("soft_limit", "most"), [(100, 50), (1, 1), (None, 60)])
def test_all_readers_share_the_limit(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch, soft_limit: int | None, most: int
):
    """Half of that of the process, or the highest number."""
    limit = resource.RLIM_INFINITY if soft_limit is None else soft_limit
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    monkeypatch.setattr(open_file, "_MOST_OPEN", 60)
    readers = [OpenFiles() for _ in range(3)]
    for number, path in enumerate(paths):
        for reader in readers:
            file = reader.get(number) or reader.open(number, path)
            assert file.read(2, 0) == number.to_bytes(2, "little")
            assert sum(map(len, readers)) <= most
    del file
    assert descriptors(paths[0].parent) == sum(map(len, readers)) == most


def test_threads_find_the_right_files(paths: list[Path], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(open_file, "_MOST_OPEN", 3)
    readers = [OpenFiles(), OpenFiles()]

    def read(number: int) -> int:
        reader, file = readers[number % 2], number % 200
        opened = reader.get(file) or reader.open(file, paths[file])
        return int.from_bytes(opened.read(2, 0), "little")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(4000))) == [number % 200 for number in range(4000)]
