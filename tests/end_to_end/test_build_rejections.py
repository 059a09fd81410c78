"""Inputs that are rejected: how many a build allows, and what it says of them."""

from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from tests.support.dataset_files import manifest_of
from tests.support.receipts import read_table, write_receipts, write_table


def test_too_many_bad_inputs_publish_nothing(tmp_path: Path, build, capsys):
    table = write_receipts(tmp_path / "in", {"a": 6})
    write_table(table, [*read_table(table), {"id": "x", "image": "gone.jpg", "layout": "a"}])
    assert build(table, tmp_path / "out", "--max-bad-fraction=0.1") == 1
    error = capsys.readouterr().err
    assert "1 of 7 inputs were rejected, more than --max-bad-fraction 0.1 allows" in error
    assert "file_missing, such as x:" in error
    assert "Traceback" not in error
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["_staging"]
    assert build(table, tmp_path / "out", "--max-bad-fraction=0.2") == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "20 of 20 inputs were rejected, more than --max-bad-fraction 0.05 allows"),
        (("--max-bad-fraction=1",), "all 20 inputs were rejected; nothing was published"),
    ],
    ids=["default", "any_fraction"],
)
def test_a_label_that_no_row_has_is_said_before_an_image_is_read(
    tmp_path: Path, build, capsys, options: tuple[str, ...], sentence: str
):
    table = write_receipts(tmp_path / "in", {"a": 20})
    assert build(table, tmp_path / "out", "--label=totl:float", *options) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert "20  label_missing, such as a-0: label totl has no value" in error
    assert (
        f"finished work is kept in {tmp_path}/out/_staging: the same command reuses it; delete "
        in error
    )
    assert not (tmp_path / "out" / "_staging" / "prepared").exists()


def test_bad_rows_are_counted_with_bad_images(tmp_path: Path, build, capsys):
    """Few bad rows let the images be read, and are counted once."""
    table = write_receipts(tmp_path / "in", {"a": 8})
    bad = [{"id": "x", "image": "gone.jpg", "layout": "a"}, {"id": "y", "image": "gone.jpg"}]
    write_table(table, [*read_table(table), *bad])
    assert build(table, tmp_path / "out", "--max-bad-fraction=0.1") == 1
    assert "2 of 10 inputs were rejected" in capsys.readouterr().err
    assert list((tmp_path / "out" / "_staging" / "prepared").glob("*.npz"))
    assert build(table, tmp_path / "out", "--max-bad-fraction=0.2", "--splits=train=1") == 0
    counts = manifest_of(tmp_path / "out").counts
    assert counts.quarantined == {"file_missing": 1, "layout_missing": 1}


def test_a_header_that_cannot_work_leaves_nothing_to_keep(tmp_path: Path, build, capsys):
    (tmp_path / "t.csv").write_text("picture,layout\n")
    assert build(tmp_path / "t.csv", tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert "has no column image" in error
    assert "is kept" not in error


@pytest.mark.parametrize(
    "name", ["empty.jsonl", "gone.jsonl", "gone.csv", "gone.parquet", "folder"]
)
def test_empty_input_is_an_error(tmp_path: Path, build, capsys, name: str):
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "folder").mkdir()
    assert build(tmp_path / name, tmp_path / "out") == 1
    assert f"no receipts found in {tmp_path / name}" in capsys.readouterr().err
