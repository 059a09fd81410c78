"""A forgetting that is killed: the same command finishes it, on a disk and on object stores."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from apache_beam.io.filesystems import FileSystems

from beam_jobs.forget import main
from beam_jobs.forgetting.publish import ForgetPublisher
from beam_jobs.prepare.staging import Staging, delete_staging
from beam_jobs.running.runner import beam_options
from beam_jobs.storage import files
from beam_jobs.verify import main as verify_main
from beam_jobs.verify import verify
from schemas.file_names import COMPLETED
from tests.support.dataset_files import manifest_of
from tests.support.forked import kill_when
from tests.support.grown import table_of, truth_of
from tests.support.kills import matches
from tests.support.receipts import contents
from tests.support.stores import TestStore, started

# Files of which the first one ends the command: at its start, while shards are written, once they
# are whole, after the note of the publication, and while files are moved and deleted.
MOMENTS = (
    "_staging/BUILD",
    "_staging/finished-*/*.tfrecord",
    "_staging/finished-*/*.summary.json",
    "_staging/report.json",
    "_staging/publishing",
    "versions/00004/manifest.json",
)


def ids_file(folder: Path, rows: list[dict]) -> Path:
    path = folder / "ids.txt"
    path.write_text("".join(f"{row['id']}\n" for row in rows[::9]))
    return path


def test_it_is_finished_by_the_same_command(grown: Path, rows: list[dict], tmp_path: Path):
    arguments = [f"--ids={ids_file(tmp_path, rows)}", "--workers=1"]
    whole = Path(shutil.copytree(grown, tmp_path / "whole"))
    assert main([str(whole), *arguments]) == 0
    expected = contents(whole)
    killed = 0
    for moment, pattern in enumerate(MOMENTS):
        copy = Path(shutil.copytree(grown, tmp_path / f"killed-{moment}"))
        killed += kill_when(
            ["beam_jobs.forget", str(copy), *arguments],
            lambda: bool(matches(copy, pattern)),  # noqa: B023
        )
        before_or_after = manifest_of(copy).version
        assert before_or_after in (3, 4)
        status = main([str(copy), *arguments])
        # Where all but the last deletion was done, there is nothing to be found any more.
        assert status == 0 or before_or_after == 4
        assert contents(copy) == expected
    assert killed >= len(MOMENTS) - 1  # the last moments are short


def test_a_publication_that_is_tried_again_does_no_harm(
    grown: Path, rows: list[dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A runner may take the first attempt for lost."""
    arguments = [f"--ids={ids_file(tmp_path, rows)}", "--workers=1"]
    once, twice = (Path(shutil.copytree(grown, tmp_path / name)) for name in ("once", "twice"))
    assert main([str(once), *arguments]) == 0
    publish = ForgetPublisher.publish

    def publish_twice(self: ForgetPublisher, *values: Any, **others: Any) -> None:
        publish(self, *values, **others)
        publish(self, *values, **others)

    monkeypatch.setattr(ForgetPublisher, "publish", publish_twice)
    assert main([str(twice), *arguments]) == 0
    assert contents(twice) == contents(once)


@pytest.mark.parametrize("left", [("publishing", "report.json"), ("publishing",)])
def test_a_kill_at_its_very_end(
    grown: Path, rows: list[dict], tmp_path: Path, monkeypatch, capsys, left: tuple[str, ...]
):
    copy = Path(shutil.copytree(grown, tmp_path / "copy"))
    arguments = [str(copy), f"--ids={ids_file(tmp_path, rows)}", "--workers=1"]
    kept: dict[str, bytes] = {}

    def keep(staging: Staging) -> None:
        kept.update({name: Path(staging.directory, name).read_bytes() for name in left})
        delete_staging(staging)

    monkeypatch.setattr("beam_jobs.forget.delete_staging", keep)
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    expected = contents(copy)
    monkeypatch.undo()
    (copy / "_staging").mkdir()
    for name, data in {"BUILD": b"", **kept}.items():
        (copy / "_staging" / name).write_bytes(data)
    assert main(arguments) == 0
    assert capsys.readouterr().out == (
        printed if len(left) == 2 else f"{copy} holds none of it any more\n"
    )
    assert contents(copy) == expected


@pytest.mark.parametrize("command", ["append", "compact"])
def test_files_that_a_kill_has_left_go_with_the_next_job(
    grown: Path, rows: list[dict], build, tmp_path: Path, command: str
):
    """Files are left by a kill between the new COMPLETED and the deletions."""
    copy = Path(shutil.copytree(grown, tmp_path / "copy"))
    assert main([str(copy), f"--ids={ids_file(tmp_path, rows)}", "--workers=1"]) == 0
    before = contents(grown)
    left = {name for name in before if name not in contents(copy)}
    assert any(name.endswith(".tfrecord") for name in left)
    for name in left:
        (copy / name).parent.mkdir(exist_ok=True, parents=True)
        (copy / name).write_bytes(before[name])
    assert {fault.message for fault in verify(str(copy), workers=1)} == {"is not in any manifest"}
    if command == "append":
        assert build(table_of(tmp_path, "again", rows), copy, "--append") == 0
        assert truth_of(copy).keys() >= {row["id"] for row in rows}
    else:
        from beam_jobs.compact import main as compact_main

        assert compact_main([str(copy), "--workers=1"]) == 0
    assert left.isdisjoint(contents(copy))
    assert list(verify(str(copy), workers=1)) == []


def test_a_build_that_has_not_ended_comes_first(grown: Path, rows, tmp_path: Path, capsys):
    copy = Path(shutil.copytree(grown, tmp_path / "copy"))
    (copy / "_staging").mkdir()
    (copy / "_staging" / "BUILD").touch()
    (copy / "_staging" / "inputs.json").write_text("40")
    with pytest.raises(SystemExit):
        main([str(copy), f"--ids={ids_file(tmp_path, rows)}", "--workers=1"])
    assert "holds the work of a build that has not ended" in capsys.readouterr().err


@pytest.fixture(scope="module", params=["s3", "gs"])
def server(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[TestStore]:
    with started(request.param, tmp_path_factory.mktemp("server")) as store:
        yield store


def test_object_stores_forget_too(server: TestStore, grown: Path, rows: list[dict], tmp_path: Path):
    arguments = [f"--ids={ids_file(tmp_path, rows)}", "--workers=1"]
    local = Path(shutil.copytree(grown, tmp_path / "local"))
    assert main([str(local), *arguments]) == 0
    root = files.join(server.root, "forgotten")
    FileSystems.set_options(beam_options(server.options))
    for name, data in contents(grown).items():
        files.write(files.join(root, name), data)
    remote = [root, *arguments, *server.options]

    def shards_are_written() -> bool:
        return bool(files.list_files(files.join(root, "_staging/finished-*/*.tfrecord")))

    assert kill_when(["beam_jobs.forget", *remote], shards_are_written)
    assert files.read(files.join(root, COMPLETED)) == (grown / COMPLETED).read_bytes()
    assert main(remote) == 0
    found = files.list_files(files.join(root, "**"))
    stored = {each.path.removeprefix(root + "/"): files.read(each.path) for each in found}
    assert stored == contents(local)
    assert verify_main([root, "--quiet", "--workers=1", *server.options]) == 0
