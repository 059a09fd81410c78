"""The build from and to object stores, on servers of their protocols."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("apache_beam")

from apache_beam.io.filesystems import FileSystems

import beam_jobs.prepare.preparer
from beam_jobs.build import main
from beam_jobs.images.image import ImageOptions
from beam_jobs.prepare.preparer import ChunkPreparer
from beam_jobs.prepare.staging import Staging
from beam_jobs.sources.row import Row
from beam_jobs.storage import files, object_stores
from beam_jobs.verify import main as verify_main
from schemas.file_names import COMPLETED, shard_name
from tests.support.dataset_files import EXCLUDED, MANIFEST
from tests.support.receipts import contents, draw_receipt, read_table, write_receipts, write_table
from tests.support.stores import STORE_NAMES, TestStore, started


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
    assert not stored(files.join(root, "out/_staging"))
    assert verify_main([files.join(root, "out"), "--quiet", "--workers=1", *server.options]) == 0


def test_a_folder_gives_the_same_bytes(server: TestStore, root: str, tmp_path: Path):
    names = ("a/1.jpg", "a/2.jpg", "a/2023/05/3.jpg", "b [1]*/4.jpg", "b [1]*/ü=5+6%20#7.jpg")
    for number, name in enumerate(names):
        draw_receipt(tmp_path / "in" / name, number)
    upload(tmp_path / "in", files.join(root, "in"))
    assert build(server, root, "") == 0
    paths = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    assert main([*paths, "--quiet", "--workers=1", *server.options]) == 0
    assert stored(files.join(root, "out")) == contents(tmp_path / "out")


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
    arguments = (server, root, bad_table.name, "--splits=train=1", "--shards=2")

    assert build(*arguments) == 1
    assert "images/gone.jpg does not exist" in capsys.readouterr().err
    staging = stored(files.join(root, "out/_staging"))
    assert any(name.startswith("prepared/") for name in staging)
    assert all(name.startswith("_staging/") for name in stored(files.join(root, "out")))

    with monkeypatch.context() as patch:  # whoever prepares an image again, fails at it
        patch.setattr(beam_jobs.prepare.preparer, "store_image", None)
        assert build(*arguments, "--max-bad-fraction=0.2") == 0
    first = stored(files.join(root, "out"))
    (generation,) = json.loads(first[MANIFEST])["generations"]
    assert generation["counts"]["quarantined"] == {"file_missing": 1}
    assert b"images/gone.jpg does not exist" in b"".join(
        data for name, data in first.items() if "quarantine/rejected.jsonl" in name
    )

    with pytest.raises(SystemExit):
        build(*arguments, "--max-bad-fraction=0.2", "--seed=1")
    assert "holds a finished dataset" in capsys.readouterr().err
    assert stored(files.join(root, "out")) == first

    shard = files.join(root, "out", shard_name("train", 0))
    data = files.read(shard)
    files.write(shard, bytes([data[0] ^ 1]) + data[1:])
    verify = [files.join(root, "out"), "--quiet", "--workers=1", *server.options]
    assert verify_main([*verify, "--exclude"]) == 0
    assert stored(files.join(root, "out")).keys() == {*first, EXCLUDED}

    # Some of nine shards stay empty.
    assert build(*arguments, "--max-bad-fraction=0.2", "--shards=9", "--overwrite") == 0
    second = stored(files.join(root, "out"))
    assert second[COMPLETED] != first[COMPLETED]
    assert EXCLUDED not in second, "what is excluded belongs to the replaced dataset"
    assert not stored(files.join(root, "out/_staging"))
    assert verify_main(verify) == 0
    files.delete([files.join(root, "out", COMPLETED)])
    assert verify_main(verify) == 1


def test_what_is_not_there_is_said(server: TestStore, root: str, capsys: pytest.CaptureFixture):
    assert build(server, root, "no-such.jsonl") == 1
    assert "no receipts found in" in capsys.readouterr().err
    assert not files.exists(files.join(root, "file"))
    assert files.list_files(files.join(root, "file")) == []
    assert list(stored(root)) == ["out/_staging/BUILD"]
    with pytest.raises(FileNotFoundError, match="file does not exist"):
        files.read(files.join(root, "file"))


def test_a_bucket_that_is_not_there(server: TestStore, tmp_path: Path, capsys):
    table = write_receipts(tmp_path / "in", {"a": 1})
    output = files.join(server.root.replace("receipts", "nowhere"), "out")
    with pytest.raises(SystemExit) as exit_info:
        main(["--input", str(table), "--output", output, "--workers=1", *server.options])
    assert exit_info.value.code == 2
    sentence = capsys.readouterr().err
    assert f"error: {output}" in sentence
    assert "can't be accessed: " in sentence
    assert "check its name, the credentials of its store and the network" in sentence
    assert files.list_files(f"{output}/*.jsonl") == []


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


def test_the_version_of_a_file_changes_with_its_contents(server: TestStore, root: str):
    path = files.join(root, "a[1]*")
    assert files.state(path) is None
    files.write(path, b"one")
    first = files.state(path)
    assert first is not None
    assert first.size_bytes == 3
    assert files.state(path) == first
    files.write(path, b"two")
    second = files.state(path)
    assert second is not None
    assert second.size_bytes == 3
    assert second.version != first.version


CLIENTS = {
    "s3": "boto3.session.Session.client",
    "gs": "google.cloud.storage.Client.__init__",
    "azfs": "azure.storage.blob.BlobServiceClient.__init__",
}


def test_a_prepared_chunk_is_found_by_one_request_an_image(
    server: TestStore, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = []
    for number in range(4):
        draw_receipt(tmp_path / "receipt.jpg", number)
        uri = files.join(root, "in [1]", f"{number}.jpg")
        files.write(uri, (tmp_path / "receipt.jpg").read_bytes())
        rows.append(Row(id=str(number), uri=uri, categories={"layout": "a"}).to_bytes())
    preparer = ChunkPreparer(
        staging=Staging(files.join(root, "out")), labels=(), image=ImageOptions(), seed=0
    )
    chunk = preparer.prepare(0, rows)
    asked = []
    state = files.state

    def note(path: str) -> object:
        asked.append(path)
        return state(path)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a new client, a listing, or an image that is prepared again")

    with monkeypatch.context() as patch:
        patch.setattr(files, "state", note)
        patch.setattr(FileSystems, "match", refuse)
        patch.setattr(files.store_of(FileSystems.get_scheme(root)), "list_below", refuse)
        patch.setattr(beam_jobs.prepare.preparer, "store_image", refuse)
        patch.setattr(CLIENTS[root.partition("://")[0]], refuse)
        assert preparer.prepare(0, rows).to_bytes() == chunk.to_bytes()
    assert sorted(path for path in asked if "/in [1]/" in path) == [
        files.join(root, "in [1]", f"{number}.jpg") for number in range(4)
    ]


def test_listings_of_many_files_are_whole(server: TestStore, root: str):
    for number in range(25):
        files.write(files.join(root, f"{number:02}"), b"")
    assert list(stored(root)) == [f"{number:02}" for number in range(25)]
    files.delete_tree(root)
    assert stored(root) == {}


def test_requests_at_a_time_are_no_more_than_a_client_keeps_connections(
    server: TestStore, root: str, caplog: pytest.LogCaptureFixture
):
    """Each one more would open a connection, throw it away and warn."""
    paths = [files.join(root, f"{number:02}") for number in range(60)]
    for path in paths:
        files.write(path, b"x")
    assert b"".join(files.read_ranges([(path, 0, 1) for path in paths])) == b"x" * len(paths)
    assert all(files.map_paths(files.exists, paths))
    files.move([(path, f"{path} moved") for path in paths])
    files.delete([f"{path} moved" for path in paths])
    assert not stored(root)
    assert [each.getMessage() for each in caplog.records if "pool" in each.name] == []


@pytest.mark.parametrize("size", [0, 1, (9 << 20) + 1])
def test_a_file_is_uploaded_once_and_never_copied(
    server: TestStore, root: str, monkeypatch: pytest.MonkeyPatch, size: int
):
    store = files.store_of(FileSystems.get_scheme(root))
    monkeypatch.setattr(store, "move", None)
    monkeypatch.setattr(object_stores, "SPOOL_BYTES", 1 << 20)
    data = np.random.default_rng(size).bytes(size)
    for _ in range(2):
        with files.create(files.join(root, "a[1]*")) as file:
            for start in range(0, size, 1 << 20):
                file.write(data[start : start + (1 << 20)])
    assert stored(root) == {"a[1]*": data}
    files.delete_tree(root)


def test_a_file_that_could_not_be_written_is_not_there(server: TestStore, root: str):
    files.write(files.join(root, "old"), b"old")

    def write_half(name: str) -> None:
        with files.create(files.join(root, name)) as file:
            file.write(b"half")
            raise ArithmeticError

    for name in ("old", "new"):
        with pytest.raises(ArithmeticError):
            write_half(name)
    assert stored(root) == {"old": b"old"}


@pytest.mark.parametrize("size", [0, 1, 1 << 24, (1 << 24) + 1])
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


def test_a_move_that_failed_goes_on_where_it_stopped(server: TestStore, root: str):
    names = [f"{number:02}" for number in range(50)]
    pairs = [(files.join(root, "from", name), files.join(root, "to", name)) for name in names]
    for path, _ in pairs[:30] + pairs[31:]:
        files.write(path, path.encode())
    with pytest.raises(OSError, match=r"from/30.* could not be (copied|moved)"):
        files.move(pairs)
    places = stored(root)
    assert sorted(name[-2:] for name in places) == [name for name in names if name != "30"]
    assert {f"to/{name}" for name in names[:16]} <= places.keys()

    files.write(pairs[30][0], pairs[30][0].encode())
    left = set(files.list_below(files.join(root, "from")))
    files.move([pair for pair in pairs if pair[0] in left])
    assert stored(root) == {f"to/{pair[0][-2:]}": pair[0].encode() for pair in pairs}
