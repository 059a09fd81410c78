"""The output directory: what a build writes, replaces and never touches."""

import errno
import os
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from schemas.file_names import COMPLETED
from tests.support.dataset_files import manifest_of
from tests.support.receipts import contents, write_receipts, write_table


def test_finished_dataset_is_not_harmed(tmp_path: Path, build, capsys):
    table = write_receipts(tmp_path / "in", {"a": 6})
    assert build(table, tmp_path / "out", "--shards=3", "--splits=train=1") == 0
    before = contents(tmp_path / "out")
    with pytest.raises(SystemExit) as exit_info:
        build(table, tmp_path / "out", "--shards=2")
    assert exit_info.value.code == 2
    assert "holds a finished dataset: add to it with --append" in capsys.readouterr().err
    # A failing replacement leaves the old one whole.
    bad = write_table(tmp_path / "in" / "bad.jsonl", [{"image": "gone.jpg", "layout": "a"}])
    assert build(bad, tmp_path / "out", "--overwrite") == 1
    left = contents(tmp_path / "out")
    assert {name: left[name] for name in left if not name.startswith("_staging/")} == before
    # A good one replaces it wholly: no shard of the old numbering is left.
    assert build(table, tmp_path / "out", "--shards=2", "--splits=train=1", "--overwrite") == 0
    assert len(manifest_of(tmp_path / "out").splits["train"].shards) == 2
    assert not list((tmp_path / "out").glob("receipts-train-00002*"))


@pytest.mark.parametrize(
    ("name", "marker"),
    [
        pytest.param("thesis.txt", "", id="beside_the_dataset"),
        pytest.param("_staging/thesis.txt", "", id="in_staging"),
        pytest.param("_staging/plan.json", "", id="in_staging_that_no_build_made"),
        pytest.param("_staging/prepared/thesis.txt", "_staging/BUILD", id="in_a_builds_staging"),
    ],
)
def test_foreign_files_are_not_harmed(tmp_path: Path, build, capsys, name: str, marker: str):
    table = write_receipts(tmp_path / "in", {"a": 2})
    for each in filter(None, (name, marker)):
        path = tmp_path / "out" / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("precious")
    before = contents(tmp_path / "out")
    with pytest.raises(SystemExit) as exit_info:
        build(table, tmp_path / "out")
    assert exit_info.value.code == 2
    assert f"out holds {name}, which no build wrote" in capsys.readouterr().err
    assert contents(tmp_path / "out") == before


def test_a_staging_directory_that_is_a_link_is_not_followed(tmp_path: Path, build, capsys):
    table = write_receipts(tmp_path / "in", {"a": 2})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "thesis.txt").write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "_staging").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SystemExit):
        build(table, tmp_path / "out")
    assert "out holds _staging, which no build wrote" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["thesis.txt"]


def test_nothing_outside_the_output_is_touched(tmp_path: Path, build):
    table = write_receipts(tmp_path / "in", {"a": 2})
    assert build(table, tmp_path / "data.staging") == 0
    (tmp_path / "x.staging").mkdir()
    (tmp_path / "x.staging" / "thesis.txt").write_text("precious")
    before = contents(tmp_path)
    assert build(table, tmp_path / "data") == 0
    assert build(table, tmp_path / "x") == 0
    assert build(table, tmp_path / "y", "--dry-run") == 0
    after = contents(tmp_path)
    assert {name: after[name] for name in after if name in before} == before
    assert {name.split("/")[0] for name in after if name not in before} == {"data", "x"}


def test_an_output_that_is_a_volume_of_its_own(
    tmp_path: Path, build, monkeypatch: pytest.MonkeyPatch
):
    """Nothing can be renamed into a Docker volume at /data with --output /data."""
    table = write_receipts(tmp_path / "in", {"a": 6})
    volume = tmp_path / "volume"
    volume.mkdir()
    replace, renamed = os.replace, []

    def rename_within(source: str, target: str) -> None:
        inside = {Path(path).is_relative_to(volume) for path in (source, target)}
        if inside == {True, False}:
            raise OSError(errno.EXDEV, "Invalid cross-device link", source)
        renamed.append(target)
        replace(source, target)

    monkeypatch.setattr(os, "replace", rename_within)
    assert build(table, volume, "--shards=2") == 0
    assert build(table, volume, "--shards=3", "--overwrite") == 0
    assert str(volume / COMPLETED) in map(str, renamed)
    assert len(manifest_of(volume).splits["train"].shards) == 3


def test_an_output_that_files_cannot_be_renamed_into(
    tmp_path: Path, table: Path, build, capsys, monkeypatch: pytest.MonkeyPatch
):
    """A staging directory that is a volume of its own is named before an image is read."""

    def fail(source: str, target: str) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link", str(source))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(SystemExit) as exit_info:
        build(table, tmp_path / "out")
    assert exit_info.value.code == 2
    assert "out can't be written: Invalid cross-device link" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_an_output_that_is_a_file(tmp_path: Path, table: Path, build, capsys, name: str):
    (tmp_path / "file").write_text("precious")
    for options in ((), ("--dry-run",)):
        with pytest.raises(SystemExit) as exit_info:
            build(table, tmp_path / name, *options)
        assert exit_info.value.code == 2
        assert f"{name} can't be written: Not a directory" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "precious"
