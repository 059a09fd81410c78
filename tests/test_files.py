"""Reading files: what is missing, what can't be read, and what a store's bad day is."""

import errno
import io
import os
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from beam_jobs import files
from beam_jobs.errors import BuildError
from beam_jobs.stores import Store


class StoreError(Exception):
    """As the clients of the object stores raise them."""

    def __init__(self, status: Any) -> None:
        super().__init__(f"status {status}")
        self.code = status


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> list[Exception | bytes]:
    """What a remote store answers, one after the other."""
    answers: list[Exception | bytes] = []

    def open_(path: str, *, buffer_bytes: int) -> io.BytesIO:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return io.BytesIO(answer)

    answering = Store()
    monkeypatch.setattr(answering, "open", open_)
    monkeypatch.setattr(files, "store_of", lambda scheme: answering)
    return answers


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [(0, 3, b"abc"), (2, 100, b"cdefg"), (0, 10**18, b"abcdefg"), (9, 1, b""), (3, 0, b"")],
)
def test_a_range_ends_where_the_file_ends(
    tmp_path: Path, store: list[Any], offset: int, length: int, expected: bytes
) -> None:
    (tmp_path / "file").write_bytes(b"abcdefg")
    assert files.read_range(str(tmp_path / "file"), offset, length) == expected
    store.append(b"abcdefg")
    assert files.read_range("s3://bucket/file", offset, length) == expected


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ESTALE])
def test_a_fault_of_the_machine_ends_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "_read_local", fail)
    with pytest.raises(BuildError, match=f"file could not be read, .*{os.strerror(number)}"):
        files.read(str(tmp_path / "file"))


def test_local_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-file does not exist"):
        files.read(str(tmp_path / "no-such-file"))
    with pytest.raises(OSError, match="could not be read: IsADirectoryError"):
        files.read(str(tmp_path))
    with pytest.raises(OSError, match="could not be read: ValueError"):
        files.read(str(tmp_path / "a\0b"))


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (StoreError(404), FileNotFoundError, "s3://b/f does not exist"),
        (StoreError(HTTPStatus.NOT_FOUND), FileNotFoundError, "s3://b/f does not exist"),
        (FileNotFoundError("gone"), FileNotFoundError, "s3://b/f does not exist"),
        (StoreError(403), OSError, "s3://b/f could not be read: .*403"),
        (
            StoreError(401),
            BuildError,
            "^s3://b/f could not be read, its store refused the credentials: .*401.*; renew them",
        ),
        (StoreError(400), BuildError, "its store refused the credentials"),
        (MemoryError(), MemoryError, "^$"),
        (PermissionError(13, "denied"), OSError, "s3://b/f could not be read: .*denied"),
        (ValueError("not a bucket"), OSError, "s3://b/f could not be read: .*not a bucket"),
    ],
)
def test_faults_of_a_remote_file_are_not_tried_again(
    store: list[Any], error: Exception, kind: type[Exception], sentence: str
) -> None:
    store.append(error)
    with pytest.raises(kind, match=sentence):
        files.read("s3://b/f")


PASSING = [
    StoreError(500),
    StoreError(503),
    StoreError(429),
    StoreError(None),
    ConnectionResetError("reset"),
    TimeoutError("late"),
    OSError("a client's own kind of connection error"),
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_faults_of_the_store_are_tried_again(store: list[Any], error: Exception) -> None:
    store += [error, error, b"data"]
    assert files.read("s3://b/f") == b"data"


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_a_store_that_stays_away_ends_the_job(store: list[Any], error: Exception) -> None:
    store += [error] * 100
    with pytest.raises(
        BuildError, match=r"s3://b/f could not be read in 6 tries: .* once its store answers"
    ):
        files.read("s3://b/f")
    assert len(store) == 94


def test_moves_replace_what_is_there(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    files.move([])
    files.move([(str(tmp_path / "a"), str(tmp_path / "b"))])
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("b", "a")]
