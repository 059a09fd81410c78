"""The build from and to object stores, on servers of their protocols."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("apache_beam")

import beam_jobs.prepare
from beam_jobs import files
from beam_jobs.build import main
from beam_jobs.verify import main as verify_main
from schemas.manifest import COMPLETED, EXCLUDED, shard_name
from tests.conftest import contents, read_table, write_receipts, write_table
from tests.stores import STORE_NAMES, TestStore, started


@pytest.fixture(scope="module", params=STORE_NAMES)
def server(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[TestStore]:
    with started(request.param, tmp_path_factory.mktemp("server")) as store:
        yield store


@pytest.fixture
def root(server: TestStore, request: pytest.FixtureRequest) -> str:
    """A folder of the store for one test."""
    return files.join(server.root, request.function.__name__)


def upload(folder: Path, root: str) -> None:
    for name, data in contents(folder).items():
        files.write(files.join(root, name), data)


def stored(root: str) -> dict[str, bytes]:
    """All files below a folder: relative path to bytes."""
    found = files.list_files(files.join(root, "**"))
    return {each.path.removeprefix(root + "/"): files.read(each.path) for each in found}


def build(server: TestStore, root: str, table: str, *options: str) -> int:
    paths = ("--input", files.join(root, "in", table), "--output", files.join(root, "out"))
    workers = () if any(o.startswith("--workers") for o in options) else ("--workers=1",)
    return main([*paths, "--quiet", *workers, *options, *server.options])


def test_gives_the_same_bytes(server: TestStore, root: str, table: Path, dataset: Path):
    """Two workers: what reaches the store in this process must reach it in theirs."""
    upload(table.parent, files.join(root, "in"))
    options = ("--shards=4", "--label=total:float", "--label=language:category", "--workers=2")
    assert build(server, root, table.name, *options) == 0
    out = stored(files.join(root, "out"))
    assert out == contents(dataset)
    assert not stored(files.join(root, "out.staging"))
    assert verify_main([files.join(root, "out"), "--quiet", "--workers=1", *server.options]) == 0


@pytest.fixture
def bad_table(tmp_path: Path) -> Path:
    """A few receipts, and one whose image is not there."""
    table = write_receipts(tmp_path / "in", {"a": 5, "b": 2})
    gone = {"id": "gone", "image": "images/gone.jpg", "layout": "a"}
    return write_table(table, [*read_table(table), gone])


def test_a_failed_build_resumes_and_a_finished_one_is_replaced(
    server: TestStore,
    root: str,
    bad_table: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
):
    upload(bad_table.parent, files.join(root, "in"))
    arguments = (server, root, bad_table.name, "--split=train=1", "--shards=2")

    assert build(*arguments) == 1
    assert "images/gone.jpg does not exist" in capsys.readouterr().err
    staging = stored(files.join(root, "out.staging"))
    assert any(name.startswith("prepared/") for name in staging)
    assert not stored(files.join(root, "out"))

    with monkeypatch.context() as patch:  # whoever prepares an image again, fails at it
        patch.setattr(beam_jobs.prepare, "store_image", None)
        assert build(*arguments, "--max-bad-fraction=0.2") == 0
    first = stored(files.join(root, "out"))
    assert json.loads(first["manifest.json"])["counts"]["quarantined"] == {"file_missing": 1}
    assert b"images/gone.jpg does not exist" in b"".join(
        data for name, data in first.items() if name.startswith("quarantine/rejected.jsonl")
    )

    with pytest.raises(SystemExit):
        build(*arguments, "--max-bad-fraction=0.2", "--seed=1")
    assert "holds a finished dataset" in capsys.readouterr().err
    assert stored(files.join(root, "out")) == first

    shard = files.join(root, "out", shard_name("train", 0, 2))
    data = files.read(shard)
    files.write(shard, bytes([data[0] ^ 1]) + data[1:])
    verify = [files.join(root, "out"), "--quiet", "--workers=1", *server.options]
    assert verify_main([*verify, "--exclude"]) == 0
    assert stored(files.join(root, "out")).keys() == {*first, EXCLUDED}

    # Some of nine shards stay empty.
    assert build(*arguments, "--max-bad-fraction=0.2", "--shards=9", "--overwrite") == 0
    second = stored(files.join(root, "out"))
    assert second[COMPLETED] != first[COMPLETED]
    assert not any("of-00002" in name for name in second), "files of the replaced dataset are left"
    assert EXCLUDED not in second, "what is excluded belongs to the replaced dataset"
    assert not stored(files.join(root, "out.staging"))
    assert verify_main(verify) == 0
    files.delete([files.join(root, "out", COMPLETED)])
    assert verify_main(verify) == 1


def test_what_is_not_there_is_said(server: TestStore, root: str, capsys: pytest.CaptureFixture):
    assert build(server, root, "no-such.jsonl") == 1
    assert "no receipts found in" in capsys.readouterr().err
    assert not files.exists(files.join(root, "file"))
    assert files.list_files(files.join(root, "file")) == []
    assert files.list_files(files.join(root, "**")) == []
    with pytest.raises(FileNotFoundError, match="file does not exist"):
        files.read(files.join(root, "file"))


NAMES = ("plain", "a b", "a[1]*?.jpg", "50%.jpg", "%41", "a#b?c=d&e", "a+b", "Bäckerei/日本.jpg")


def test_files_of_any_name_are_written_read_moved_and_deleted(server: TestStore, root: str):
    paths = [files.join(root, name) for name in NAMES]
    for path in paths:
        files.write(path, path.encode())
    assert stored(root) == {name: path.encode() for name, path in zip(NAMES, paths, strict=True)}
    for path in paths:
        assert files.exists(path)
        assert [each.path for each in files.list_files(files.escape(path))] == [path]

    moved = [files.join(root, "moved", name) for name in NAMES]
    files.move(list(zip(paths, moved, strict=True)))
    expected = {f"moved/{name}": path.encode() for name, path in zip(NAMES, paths, strict=True)}
    assert stored(root) == expected

    files.delete(moved[:-1])
    files.delete(moved[:-1])  # as by a second publication: nothing is there
    assert stored(root) == {f"moved/{NAMES[-1]}": paths[-1].encode()}
    files.delete_tree(root)
    assert stored(root) == {}


def test_listings_of_many_files_are_whole(server: TestStore, root: str):
    for number in range(25):
        files.write(files.join(root, f"{number:02}"), b"")
    assert list(stored(root)) == [f"{number:02}" for number in range(25)]
    files.delete_tree(root)
    assert stored(root) == {}


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 24) + 1])
def test_reads_fetch_little_more_than_they_give(server: TestStore, root: str, size: int):
    data = np.random.default_rng(size).bytes(size)
    path = files.join(root, str(size))
    files.write(path, data)
    for offset, length in (
        (0, sys.maxsize),
        (0, 1),
        (7, 5000),
        (size - 1, 9),
        (size + 5, 9),
        (3, 0),
    ):
        if offset < 0:
            continue
        before = server.sent_bytes() if server.sent_bytes else 0
        expected = data[offset:][:length]
        assert files.read_range(path, offset, length) == expected
        if server.sent_bytes:
            # Cloud Storage's client asks for what is known of the file first.
            assert server.sent_bytes() - before <= len(expected) + 2000


def test_a_move_awaits_the_copy(server: TestStore, root: str, monkeypatch: pytest.MonkeyPatch):
    if server.blob_server is None:
        pytest.skip("only our server copies slowly")
    source, target = files.join(root, "source"), files.join(root, "target")
    files.write(source, b"data")
    monkeypatch.setattr(server.blob_server, "slow_copies", True)
    files.move([(source, target)])
    assert stored(root) == {"target": b"data"}
