"""Datasets of JPEG files with restart rows: built, appended to, compacted, verified."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin

pytest.importorskip("apache_beam")

from beam_jobs.compact import main as compact_main
from beam_jobs.images.restart_rows import encode_again
from beam_jobs.verify import verify
from schemas.restart_rows import check_row_table, has_row_table
from tests.support.dataset_files import manifest_of, records_of
from tests.support.grown import table_of
from tests.support.printed import print_receipt
from tests.support.receipts import contents

ROWS = ("--restart-rows", "--shards=2")


def files_of(directory: Path) -> dict[str, bytes]:
    splits = [records_of(directory, split) for split in manifest_of(directory).splits]
    records = [record for split in splits for shard in split for record in shard]
    return {record["image/source_id"]: record["image/encoded"] for record in records}


def pixels(file: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(file)) as image:
        return np.asarray(image).astype(int)


@pytest.fixture(scope="module")
def table(rows: list[dict], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table_of(tmp_path_factory.mktemp("table"), "first", rows[:20])


@pytest.fixture(scope="module")
def plain(table: Path, build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("plain") / "out"
    assert build(table, out, "--shards=2") == 0
    return out


@pytest.fixture(scope="module")
def with_rows(table: Path, build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rows") / "out"
    assert build(table, out, *ROWS) == 0
    return out


def test_kept_files_are_encoded_again(plain: Path, with_rows: Path):
    kept, again = files_of(plain), files_of(with_rows)
    assert kept.keys() == again.keys()
    for id_, file in again.items():
        check_row_table(file)
        assert not has_row_table(kept[id_])
        assert np.abs(pixels(file) - pixels(kept[id_])).mean() < 1
    assert manifest_of(with_rows).build_options["image"]["restart_rows"] is True
    assert list(verify(str(with_rows), workers=1)) == []


@pytest.mark.parametrize(
    "options",
    [{}, {"subsampling": 0}, {"subsampling": 1}, {"keep_rgb": True}, {"progressive": True}],
    ids=["4:2:0", "4:4:4", "4:2:2", "RGB", "progressive"],
)
def test_a_file_that_is_encoded_again_looks_alike(options: dict):
    image = print_receipt(["99 SPEED MART", "Kuala Lumpur", "Total 12.50"], seed=1)
    file = io.BytesIO()
    image.convert("RGB").save(file, "JPEG", quality=90, **options)
    again = encode_again(file.getvalue())
    check_row_table(again)
    assert np.abs(pixels(again) - pixels(file.getvalue())).mean() < 1


def test_a_sampling_that_pillow_lacks_becomes_none(monkeypatch: pytest.MonkeyPatch):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=95, subsampling=0)
    monkeypatch.setattr(JpegImagePlugin, "get_sampling", lambda image: -1)
    again = encode_again(file.getvalue())
    assert np.abs(pixels(again) - pixels(file.getvalue())).mean() < 2


def test_scaled_images_have_the_same_pixels(table: Path, build, tmp_path: Path):
    for name, options in (("plain", ()), ("rows", ROWS)):
        assert build(table, tmp_path / name, "--max-side=100", *options) == 0
    expected = files_of(tmp_path / "plain")
    for id_, file in files_of(tmp_path / "rows").items():
        check_row_table(file)
        np.testing.assert_array_equal(pixels(file), pixels(expected[id_]))


def test_what_is_appended_has_them_too(
    table: Path, rows: list[dict], build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "out"
    assert build(table, out, *ROWS) == 0
    assert build(table_of(tmp_path, "second", rows[20:30]), out, "--append") == 0
    files = files_of(out)
    assert len(files) == 30
    assert all(map(has_row_table, files.values()))
    assert build(table, tmp_path / "plain", "--shards=2") == 0
    with pytest.raises(SystemExit, match="2"):
        build(table, tmp_path / "plain", "--append", "--restart-rows")
    assert "--restart-rows: the dataset in" in capsys.readouterr().err


def test_compacting_adds_them(plain: Path, with_rows: Path, tmp_path: Path, build, table: Path):
    out = tmp_path / "out"
    assert build(table, out, "--shards=2") == 0
    assert compact_main([str(out), "--workers=1", "--restart-rows"]) == 0
    # Records are dealt in the order of their ids, so only the version differs from a build.
    assert files_of(out) == files_of(with_rows)
    assert list(verify(str(out), workers=1)) == []
    before = contents(out)
    assert compact_main([str(out), "--workers=1", "--restart-rows"]) == 0
    assert contents(out) == before


def test_a_wrong_table_is_a_fault(with_rows: Path, build, table: Path, tmp_path: Path, monkeypatch):
    from beam_jobs.images import restart_rows

    def wrong(data: bytes) -> bytes:
        file = bytearray(whole(data))
        file[60] ^= 1
        return bytes(file)

    whole = restart_rows.with_row_table
    monkeypatch.setattr(restart_rows, "with_row_table", wrong)
    assert build(table, tmp_path / "out", *ROWS) == 0
    messages = {fault.message for fault in verify(str(tmp_path / "out"), workers=1)}
    assert "JPEG file whose table of rows is wrong" in messages


def test_pixels_have_no_rows(
    table: Path, build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out, raw = tmp_path / "out", ("--encoding=raw", "--raw-size=32x32", "--shards=2")
    with pytest.raises(SystemExit, match="2"):
        build(table, out, *raw, "--restart-rows")
    assert "--restart-rows is for JPEG files, and" in capsys.readouterr().err
    assert build(table, out, *raw) == 0
    with pytest.raises(SystemExit, match="2"):
        compact_main([str(out), "--restart-rows"])
    assert "--restart-rows is for JPEG files, and" in capsys.readouterr().err
