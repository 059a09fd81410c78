"""Reading files: what is missing, what can't be read, and what a store's bad day is."""

import errno
import io
import os
import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.errors import BuildError
from beam_jobs.storage import files
from beam_jobs.storage.object_stores import Store


class StoreError(Exception):
    """An error as the clients of the object stores raise it."""

    def __init__(self, status: Any) -> None:
        super().__init__(f"status {status}")
        self.code = status


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> list[Exception | bytes]:
    """The answers of a remote store, one after the other; the test fills the list."""
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


@pytest.fixture
def odd_file(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> str:
    """Path of what is neither a file nor a folder."""
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    match request.param:
        case "pipe":
            os.mkfifo("pipe")
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind("socket")
        case "link_to_itself":
            Path("link_to_itself").symlink_to("link_to_itself")
    return str(tmp_path / request.param) if request.param != "device" else "/dev/zero"


@pytest.mark.parametrize("odd_file", ["pipe", "socket", "device", "link_to_itself"], indirect=True)
def test_what_is_no_file_is_refused_and_never_waited_for(odd_file: str) -> None:
    with pytest.raises(OSError, match=f"^{odd_file} could not be read: "):
        files.read(odd_file)


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
        BuildError, match=r"s3://b/f could not be read in several tries: .* once its store answers"
    ):
        files.read("s3://b/f")
    assert len(store) == 94


def test_a_store_whose_client_tries_for_minutes_is_asked_once(
    store: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store += [TimeoutError("after two minutes")] * 2
    monkeypatch.setattr(time, "monotonic", count(step=120).__next__)
    with pytest.raises(BuildError, match="after two minutes"):
        files.read("s3://b/f")
    assert len(store) == 1


@pytest.mark.parametrize("error", [StoreError(403), OSError("no network"), StoreError(None)])
@pytest.mark.parametrize(
    "ask", [files.exists, files.state, files.list_below, files.list_files], ids=lambda f: f.__name__
)
def test_a_store_that_refuses_is_named(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[str], Any], error: Exception
) -> None:
    def fail(_: str) -> None:
        raise error

    refusing = Store()
    for name in ("exists", "state", "list_below", "match"):
        monkeypatch.setattr(refusing, name, fail)
    monkeypatch.setattr(files, "store_of", lambda scheme: refusing)
    with pytest.raises(
        BuildError, match=r"^s3://b/f can't be accessed: .*; check its name, the credentials of"
    ):
        ask("s3://b/f")


def test_moves_replace_what_is_there(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    files.move([])
    files.move([(str(tmp_path / "a"), str(tmp_path / "b"))])
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("b", "a")]


@pytest.mark.parametrize(("length", "ahead"), [(1, 64), (10, 10), (1000, 1)])
def test_reads_ahead_in_bounded_memory(monkeypatch: pytest.MonkeyPatch, length: int, ahead: int):
    """At most 64 ranges, of at most 100 bytes together; always at least one."""
    asked: list[int] = []

    def read_range(path: str, offset: int, length: int) -> bytes:
        asked.append(offset)
        return bytes([offset]) * length

    monkeypatch.setattr(files, "read_range", read_range)
    monkeypatch.setattr(files, "_READ_AHEAD_BYTES", 100)
    most = 0
    for number, data in enumerate(
        files.read_ranges(("gs://bucket/file", offset, length) for offset in range(200))
    ):
        assert data == bytes([number]) * length
        most = max(most, len(asked) - number)
    assert sorted(asked) == list(range(200))
    assert most <= ahead
