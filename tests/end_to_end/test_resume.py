"""Builds that find the leftovers of an earlier one."""

import json
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import pytest

pytest.importorskip("apache_beam")

import beam_jobs.writing.publish
from beam_jobs.errors import BuildError
from beam_jobs.prepare.staging import Staging, delete_staging, is_staging_file
from beam_jobs.storage import files
from beam_jobs.storage.local_files import Local
from beam_jobs.writing.publication import Publication
from tests.support.receipts import contents, draw_receipt, read_table, write_receipts, write_table


@pytest.fixture
def bad_table(tmp_path: Path) -> Path:
    """A table whose build fails after it has prepared everything."""
    table = write_receipts(tmp_path / "in", {"a": 6})
    draw_receipt(tmp_path / "in" / "images" / "shop[1]*.jpg", 77)
    odd = [
        {"id": "glob", "image": "images/shop[1]*.jpg", "layout": "a"},
        {"id": "folder", "image": "images", "layout": "a"},
        {"id": "gone", "image": "gone.jpg", "layout": "a"},
    ]
    return write_table(table.parent / "bad.jsonl", read_table(table) + odd)


def test_resumes_beside_odd_names(bad_table: Path, build, tmp_path: Path, capsys):
    assert build(bad_table, tmp_path / "out", "--max-bad-fraction=0.1") == 1
    assert list((tmp_path / "out" / "_staging" / "prepared").glob("*.npz"))
    assert build(bad_table, tmp_path / "out", "--max-bad-fraction=0.5", "--splits=train=1") == 0
    assert build(bad_table, tmp_path / "new", "--max-bad-fraction=0.5", "--splits=train=1") == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "new")
    manifest = json.loads((tmp_path / "out" / "versions/00001/manifest.json").read_text())
    assert manifest["generations"][0]["counts"]["quarantined"] == {
        "file_missing": 1,
        "unreadable": 1,
    }


def test_dry_run_leaves_prepared_work_alone(bad_table: Path, build, tmp_path: Path):
    assert build(bad_table, tmp_path / "out", "--max-bad-fraction=0.1") == 1
    before = contents(tmp_path / "out" / "_staging")
    assert build(bad_table, tmp_path / "out", "--dry-run") == 0
    assert contents(tmp_path / "out" / "_staging") == before
    assert not list(tmp_path.glob("out.plan-*"))


def test_a_sidecar_without_its_records_is_prepared_again(bad_table: Path, build, tmp_path: Path):
    assert build(bad_table, tmp_path / "out", "--max-bad-fraction=0.1") == 1
    for path in (tmp_path / "out" / "_staging" / "prepared").glob("*.tfrecord"):
        path.unlink()
    assert build(bad_table, tmp_path / "out", "--max-bad-fraction=0.5") == 0


def test_resumes_from_staging_files_that_lost_their_end(
    table: Path, build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A loss of power, on a file system that names a file before it has its bytes."""

    def fail(*_: object, **__: object) -> None:
        raise BuildError("the power is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Publication, "move_into_place", fail)
        assert build(table, tmp_path / "out") == 1
    staging = tmp_path / "out" / "_staging"
    for name, data in contents(staging).items():
        (staging / name).write_bytes(data[: len(data) // 2])
    assert {path.name for path in staging.iterdir()} > {"prepared", "references", "rows"}
    assert build(table, tmp_path / "out") == 0
    assert build(table, tmp_path / "new") == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "new")


def test_files_are_written_in_the_staging_directory_alone(
    table: Path, build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """There the next run finds and deletes what a kill leaves half written."""
    create, created = Local.create, []

    def record(store: Local, path: str) -> AbstractContextManager[BinaryIO]:
        created.append(path)
        return create(store, path)

    monkeypatch.setattr(Local, "create", record)
    assert build(table, tmp_path / "out") == 0
    assert {"COMPLETED", "features.json", "manifest.json"} <= {Path(each).name for each in created}
    staging = f"{tmp_path}/out/_staging/"
    assert [each for each in created if not each.startswith(staging)] == []


def test_the_probe_of_a_killed_run_is_deleted(table: Path, build, tmp_path: Path):
    output = tmp_path / "out"
    output.mkdir()
    (output / f".probe.{'0' * 32}.tmp").touch()
    assert build(table, output) == 0
    assert [path.name for path in output.iterdir() if path.name.startswith(".")] == []


def without_clean_up(build, *arguments) -> None:
    """Builds as if killed when the dataset is complete."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam_jobs.writing.publish, "delete_staging", lambda _: None)
        assert build(*arguments) == 0


def test_killed_clean_up_is_finished_by_the_next_run(table: Path, build, tmp_path: Path, capsys):
    without_clean_up(build, table, tmp_path / "out")
    before = contents(tmp_path / "out")
    staged = [name for name in before if name.startswith("_staging/")]
    assert {"_staging/BUILD", "_staging/publishing"} < set(staged)
    capsys.readouterr()
    assert build(table, tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert "published by an earlier run of the same command: --overwrite builds it again" in printed
    after = contents(tmp_path / "out")
    assert after == {name: before[name] for name in before if name not in staged}
    assert not (tmp_path / "out" / "_staging").exists()


@pytest.mark.parametrize("options", [(), ("--overwrite",)], ids=["first", "replacement"])
def test_overwrite_after_a_killed_clean_up_takes_new_inputs(
    build, tmp_path: Path, options: tuple[str, ...]
):
    table = write_receipts(tmp_path / "in", {"a": 6})
    without_clean_up(build, table, tmp_path / "out", *options)
    row = {"id": "new", "image": "images/new.jpg", "layout": "a"}
    draw_receipt(tmp_path / "in" / "images" / "new.jpg", 77)
    write_table(table, [*read_table(table), row])
    assert build(table, tmp_path / "out", "--overwrite") == 0
    manifest = json.loads((tmp_path / "out" / "versions/00001/manifest.json").read_text())
    assert manifest["generations"][0]["counts"]["inputs"] == 7
    assert not (tmp_path / "out" / "_staging").exists()


@pytest.mark.parametrize(
    ("deletions", "left"),
    [
        (0, ["BUILD", "inputs.json", "prepared/1.npz", "publishing"]),
        (1, ["BUILD", "publishing"]),
        (2, ["BUILD"]),
    ],
)
def test_clean_up_may_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deletions: int, left: list[str]
):
    """The note which dataset was published outlasts the work, the marker outlasts the note."""
    staging = tmp_path / "out" / "_staging"
    for name in ("publishing", "BUILD", "inputs.json", "prepared/1.npz"):
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        (staging / name).touch()
    delete, done = files.delete, []

    def count(paths: list[str]) -> None:
        if len(done) == deletions:
            raise KeyboardInterrupt
        done.append(paths)
        delete(paths)

    def remove(folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files, "delete", count)
        patch.setattr(shutil, "rmtree", remove)
        with pytest.raises(KeyboardInterrupt):
            delete_staging(Staging(str(tmp_path / "out")))
    assert list(contents(staging)) == left
    delete_staging(Staging(str(tmp_path / "out")))
    assert [path.name for path in staging.iterdir()] == ["BUILD"]  # the launching process holds it


def test_folders_left_by_a_killed_clean_up_are_deleted(
    table: Path, build, tmp_path: Path, capsys: pytest.CaptureFixture
):
    """The note of the publication is gone, so the output is finished like any other."""
    assert build(table, tmp_path / "out") == 0
    before = contents(tmp_path / "out")
    (tmp_path / "out" / "_staging" / "prepared").mkdir(parents=True)
    with pytest.raises(SystemExit):
        build(table, tmp_path / "out")
    assert "holds a finished dataset" in capsys.readouterr().err
    assert contents(tmp_path / "out") == before
    assert not (tmp_path / "out" / "_staging").exists()


def test_every_staged_file_is_told_from_foreign_ones(bad_table: Path, build, tmp_path: Path):
    """A build that fails in its last step leaves a file of each kind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam_jobs.writing.publish, "delete_staging", lambda _: None)
        assert build(bad_table, tmp_path / "out", "--max-bad-fraction=0.5") == 0
    names = [name for name in contents(tmp_path / "out") if name.startswith("_staging/")]
    assert {name.split("/")[1] for name in names} == {
        "BUILD",
        "inputs.json",
        "plan.json",
        "prepared",
        "publishing",
        "near-duplicates",
        "references",
        "rows",
        "starts",
    }
    assert all(is_staging_file(name, marked=True) for name in names)
    assert not all(is_staging_file(name, marked=False) for name in names)
