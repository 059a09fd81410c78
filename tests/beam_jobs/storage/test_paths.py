"""Paths as people write them."""

import re
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.storage.paths import absolute, is_absolute, resolved


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/b.csv", "a/b.csv"),
        ("/a/b.csv", "/a/b.csv"),
        ("file:///a/b.csv", "/a/b.csv"),
        ("file://localhost/a/b.csv", "/a/b.csv"),
        ("file:///a%20b/%C3%A9%25.csv", "/a b/é%.csv"),
        ("file:///", "/"),
        ("s3://b/a%20b", "s3://b/a%20b"),
        ("gs://b/a", "gs://b/a"),
        ("azfs://account/c/a", "azfs://account/c/a"),
        ("hdfs://a/b", "hdfs://a/b"),
    ],
)
def test_paths_that_can_be_read(path: str, expected: str) -> None:
    assert resolved(path) == expected


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("https://example.com/1.jpg", "download what lies there, and name the files"),
        ("http://example.com/t.csv", "download what lies there, and name the files"),
        ("az://c/a", "write azfs://ACCOUNT/CONTAINER/PATH"),
        ("abfss://c@a.dfs.core.windows.net/x", "write azfs://ACCOUNT/CONTAINER/PATH"),
        ("ftp://h/x", "give a local path, or one of s3://, gs://, azfs://, hdfs://"),
    ],
)
def test_paths_of_no_file_system(path: str, advice: str) -> None:
    sentence = f"{path!r} is on no file system that can be read: {advice}"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        absolute(path)


@pytest.mark.parametrize("path", ["file://host/a", "file://a", "file://"])
def test_files_of_another_machine(path: str) -> None:
    sentence = f"{path!r} names no file of this machine: write file:///PATH"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        resolved(path)


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("a/b") == str(tmp_path / "a" / "b")
    assert absolute("file:///a/b") == "/a/b"
    assert [is_absolute(path) for path in ("/a", "s3://b/a", "a/b", "./a")] == [
        True,
        True,
        False,
        False,
    ]
