"""Appending to a dataset on an object store: killed, resumed, and read meanwhile."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.build import main
from beam_jobs.compact import main as compact_main
from beam_jobs.errors import BuildError
from beam_jobs.prepare.staging import Staging
from beam_jobs.storage import files
from beam_jobs.verify import main as verify_main
from beam_jobs.writing import publish
from beam_jobs.writing.output import read_manifest
from schemas.tfrecord import read_records
from tests.support.dataset_files import manifest_of
from tests.support.forked import kill_when
from tests.support.receipts import contents, read_table, write_receipts, write_table
from tests.support.stores import TestStore, started

OPTIONS = ("--shards=2", "--workers=1", "--quiet")
NEWEST = {"COMPLETED", "dataset_info.json", "features.json"}


@pytest.fixture(scope="module", params=["s3", "gs"])
def server(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[TestStore]:
    with started(request.param, tmp_path_factory.mktemp("server")) as store:
        yield store


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Tables of some receipts, and of these and more of a further layout."""
    folder = tmp_path_factory.mktemp("in")
    rows = read_table(write_receipts(folder, {"b": 9, "c": 4, "a": 7}))
    return write_table(folder / "first.jsonl", rows[:12]), write_table(folder / "all.jsonl", rows)


def stored(root: str) -> dict[str, bytes]:
    """All files of a dataset: relative path to bytes."""
    found = files.list_files(files.join(root, "**"))
    return {each.path.removeprefix(root + "/"): files.read(each.path) for each in found}


@contextmanager
def version_1_is_read(root: str) -> Iterator[list[str | None]]:
    """Reads all records of version 1 in a loop; yields what each reading ended with."""
    readings: list[str | None] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(0.1):
            try:
                for split in read_manifest(root, 1).splits.values():
                    for shard in split.shards:
                        data = files.read(files.join(root, shard.name))
                        assert len(list(read_records(io.BytesIO(data)))) == shard.records
                readings.append(None)
            except Exception as error:  # whatever a reader may meet
                readings.append(repr(error))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield readings
    finally:
        ended.set()
        thread.join()


def test_a_killed_append_resumes_and_the_older_version_is_read(
    server: TestStore, parts: tuple[Path, Path], tmp_path: Path
):
    first, both = parts
    root = files.join(server.root, "appended")
    for table, options in ((first, ()), (both, ("--append",))):
        local = ["--input", str(table), "--output", str(tmp_path / "out"), *OPTIONS, *options]
        assert main([*local, *server.options]) == 0
    expected = contents(tmp_path / "out")

    assert main(["--input", str(first), "--output", root, *OPTIONS, *server.options]) == 0
    before = stored(root)
    append = ["--append", "--input", str(both), "--output", root, *OPTIONS, *server.options]
    killed = 0
    with version_1_is_read(root) as readings:
        for pattern in ("_staging/prepared/*.npz", "_staging/plan.json"):
            killed += kill_when(
                ["beam_jobs.build", *append],
                lambda: bool(files.list_files(files.join(root, pattern))),  # noqa: B023
                look_every_s=0.05,
            )
            left = stored(root)
            # Where the kill came late, the new version is the newest already.
            assert {name for name in before if left.get(name) != before[name]} <= NEWEST
        assert main(append) == 0
    assert killed, "each time, the build ended before it could be killed"
    after = stored(root)
    assert after == expected
    assert {name for name in before if after[name] != before[name]} <= NEWEST
    assert len(readings) > 3
    assert set(readings) == {None}
    assert manifest_of(tmp_path / "out").generations[1].counts.known == 12
    assert verify_main([root, "--quiet", "--workers=1", *server.options]) == 0


@pytest.mark.parametrize("server", ["s3"], indirect=True)
def test_an_append_that_follows_one_without_its_clean_up_can_be_killed_too(
    server: TestStore, parts: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    first, both = parts
    root = files.join(server.root, "twice")
    assert main(["--input", str(first), "--output", root, *OPTIONS, *server.options]) == 0
    append = ["--append", "--input", str(both), "--output", root, *OPTIONS, *server.options]

    def fail(_: Staging) -> None:
        raise BuildError("the end comes here")

    with monkeypatch.context() as patch:
        patch.setattr(publish, "delete_staging", fail)
        assert main(append) == 1  # after it was published
        assert main(append) == 1  # with all inputs known
    assert main(append) == 0
    assert not any(name.startswith("_staging") for name in stored(root))
    assert read_manifest(root).version == 2


@pytest.mark.parametrize("server", ["gs"], indirect=True)
def test_a_compaction_gives_the_same_bytes(server: TestStore, parts, tmp_path: Path):
    root = files.join(server.root, "compacted")
    for output in (str(tmp_path / "out"), root):
        for table, options in ((parts[0], ()), (parts[1], ("--append",))):
            paths = ["--input", str(table), "--output", output]
            assert main([*paths, *OPTIONS, *options, *server.options]) == 0
        assert compact_main([output, "--workers=1", *server.options]) == 0
    assert stored(root) == contents(tmp_path / "out")
    assert verify_main([root, "--quiet", "--workers=1", *server.options]) == 0
