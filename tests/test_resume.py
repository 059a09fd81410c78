"""What a build must cope with that an earlier one has left behind."""

import json
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs import files
from beam_jobs.output import begun_name, delete_staging
from schemas.manifest import COMPLETED
from tests.conftest import contents, draw_receipt, read_table, write_receipts, write_table


@pytest.fixture
def bad_table(tmp_path: Path) -> Path:
    """A table whose build fails after it has prepared everything."""
    table = write_receipts(tmp_path / "in", {"a": 6})
    draw_receipt(tmp_path / "in" / "images" / "shop[1]*.jpg", 77)
    odd = [
        {"id": "glob", "image": "images/shop[1]*.jpg", "layout": "a"},
        {"id": "http", "image": "http://localhost/x.jpg", "layout": "a"},
        {"id": "gone", "image": "gone.jpg", "layout": "a"},
    ]
    return write_table(table.parent / "bad.jsonl", read_table(table) + odd)


def test_resumes_beside_odd_names(bad_table: Path, build, tmp_path: Path, capsys):
    assert build(bad_table, tmp_path / "out", "--max-bad-fraction=0.1") == 1
    assert list((tmp_path / "out.staging" / "prepared").glob("*.npz"))
    assert build(bad_table, tmp_path / "out", "--max-bad-fraction=0.5", "--split=train=1") == 0
    assert build(bad_table, tmp_path / "new", "--max-bad-fraction=0.5", "--split=train=1") == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "new")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["counts"]["quarantined"] == {"file_missing": 1, "unreadable": 1}


def test_dry_run_leaves_prepared_work_alone(bad_table: Path, build, tmp_path: Path):
    assert build(bad_table, tmp_path / "out", "--max-bad-fraction=0.1") == 1
    before = contents(tmp_path / "out.staging")
    assert build(bad_table, tmp_path / "out", "--dry-run") == 0
    assert contents(tmp_path / "out.staging") == before
    assert not list(tmp_path.glob("out.plan-*"))


def test_a_sidecar_without_its_records_is_prepared_again(bad_table: Path, build, tmp_path: Path):
    assert build(bad_table, tmp_path / "out", "--max-bad-fraction=0.1") == 1
    for path in (tmp_path / "out.staging" / "prepared").glob("*.tfrecord"):
        path.unlink()
    assert build(bad_table, tmp_path / "out", "--max-bad-fraction=0.5") == 0


def test_killed_clean_up_is_finished_by_the_next_run(
    table: Path, build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    """The clean-up is the last thing a build does: here it never happens."""
    import beam_jobs.publish

    monkeypatch.setattr(beam_jobs.publish, "delete_staging", lambda _: None)
    assert build(table, tmp_path / "out") == 0
    before = contents(tmp_path / "out")
    digest = (tmp_path / "out" / COMPLETED).read_text().strip()
    assert (tmp_path / "out.staging" / begun_name(digest)).exists()
    monkeypatch.undo()
    assert build(table, tmp_path / "out") == 0
    assert contents(tmp_path / "out") == before
    assert not (tmp_path / "out.staging").exists()


def test_clean_up_deletes_the_mark_of_publication_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    staging = tmp_path / "staging"
    for name in (begun_name("0" * 64), "inputs.json", "prepared/1.npz"):
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        (staging / name).touch()
    with monkeypatch.context() as patch:
        patch.setattr(files, "delete_tree", lambda _: None)  # killed before
        delete_staging(str(staging))
    assert list(contents(staging)) == [begun_name("0" * 64)]
    delete_staging(str(staging))
    assert not staging.exists()


def test_folders_left_by_a_killed_clean_up_are_deleted(
    table: Path, build, tmp_path: Path, capsys: pytest.CaptureFixture
):
    """Whatever told of the publication is gone, so the output is finished like any other."""
    assert build(table, tmp_path / "out") == 0
    before = contents(tmp_path / "out")
    (tmp_path / "out.staging" / "prepared").mkdir(parents=True)
    with pytest.raises(SystemExit):
        build(table, tmp_path / "out")
    assert "holds a finished dataset" in capsys.readouterr().err
    assert contents(tmp_path / "out") == before
    assert not (tmp_path / "out.staging").exists()
