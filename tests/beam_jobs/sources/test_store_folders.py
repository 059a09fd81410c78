"""Folders of object stores: their parts apart, page by page, on servers of their protocols."""

import itertools
from collections.abc import Iterator

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.errors import BuildError
from beam_jobs.sources.folders import folder_rows
from beam_jobs.sources.store_folders import entries, files_below
from beam_jobs.storage import files
from tests.support.stores import STORE_NAMES, started

pytestmark = pytest.mark.slow

NAMES = (
    "lone.jpg",
    "a/1.jpg",
    "a/2023/05/3.jpg",
    "a/2023/4.jpg",
    "b [1]*/4.jpg",
    "b [1]*/ü=5+6%20#7.jpg",
    *(f"many/{number}.jpg" for number in range(12)),
)


@pytest.fixture(scope="module", params=STORE_NAMES)
def folder(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[str]:
    with started(request.param, tmp_path_factory.mktemp("server")) as store:
        folder = files.join(store.root, "in")
        for name in NAMES:
            files.write(files.join(folder, name), b"x")
        files.write(files.join(store.root, "input", "other.jpg"), b"x")
        yield folder


def test_entries_are_those_of_one_level(folder: str):
    found = [path.removeprefix(f"{folder}/") for path in entries(f"{folder}/")]
    assert sorted(found) == ["a/", "b [1]*/", "lone.jpg", "many/"]
    found = [path.removeprefix(f"{folder}/") for path in entries(f"{folder}/a/2023/")]
    assert sorted(found) == ["a/2023/05/", "a/2023/4.jpg"]
    assert len(list(entries(f"{folder}/many/"))) == 12


@pytest.mark.parametrize("name", ["gone/", "lone.jpg/"])
def test_a_folder_that_is_not_there_is_empty(folder: str, name: str):
    assert list(entries(f"{folder}/{name}")) == []


def test_a_bucket_that_is_not_there_is_empty(folder: str):
    bucket = folder.removesuffix("/in") + "-gone"
    assert list(entries(f"{bucket}/in/")) == []


def test_the_files_of_all_parts_are_those_below_the_folder(folder: str):
    parts = list(entries(f"{folder}/"))
    found = [path for part in parts for path in files_below(part)]
    assert sorted(path.removeprefix(f"{folder}/") for path in found) == sorted(NAMES)


def in_memory(monkeypatch: pytest.MonkeyPatch, tree: dict[str, Iterator[str]]) -> None:
    monkeypatch.setattr(files, "entries", tree.__getitem__)


def test_a_folder_without_end_is_read_as_it_is_listed(monkeypatch: pytest.MonkeyPatch):
    endless = (f"s3://b/in/shop/{number}.jpg" for number in itertools.count())
    in_memory(monkeypatch, {"s3://b/in/shop/": endless})
    rows = folder_rows("s3://b/in/shop/", folder="s3://b/in")
    first = list(itertools.islice(rows, 3))
    assert [(row.id, row.categories["layout"]) for row in first] == [
        ("shop/0.jpg", "shop"),
        ("shop/1.jpg", "shop"),
        ("shop/2.jpg", "shop"),
    ]


def test_the_object_that_stands_for_a_folder_is_none_of_its_files(monkeypatch: pytest.MonkeyPatch):
    in_memory(monkeypatch, {"s3://b/in/": iter(["s3://b/in/", "s3://b/in/a.jpg"])})
    assert list(files_below("s3://b/in/")) == ["s3://b/in/a.jpg"]


def test_a_folder_that_can_t_be_listed_ends_the_build(monkeypatch: pytest.MonkeyPatch):
    def refuse(folder: str) -> Iterator[str]:
        raise PermissionError("no credentials")

    monkeypatch.setattr(files, "entries", refuse)
    with pytest.raises(
        BuildError,
        match=r"^folder s3://b/in/ can't be listed: PermissionError\('no credentials'\); check",
    ):
        list(entries("s3://b/in/"))
