"""Versions of source files: a file that was replaced is read again."""

import os
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("apache_beam")

from beam_jobs.images.image import ImageOptions
from beam_jobs.prepare.preparer import ChunkPreparer
from beam_jobs.prepare.source_versions import MISSING, UNKNOWN, are_current, source_versions
from beam_jobs.prepare.staging import Staging
from beam_jobs.sources.row import Row
from beam_jobs.storage import files
from tests.support.receipts import draw_receipt


def draw_bitmap(path: Path, color: int) -> None:
    """Draws an image; all have the same size in bytes."""
    Image.new("RGB", (40, 60), (color, color, color)).save(path)


def touch(path: Path) -> None:
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(1, 1))


def replace_by_older(path: Path) -> None:
    other = path.with_name("other")
    draw_bitmap(other.with_suffix(".bmp"), 99)
    os.utime(other.with_suffix(".bmp"), ns=(1, 1))
    other.with_suffix(".bmp").rename(path)


@pytest.mark.parametrize(
    "change", [touch, replace_by_older, Path.unlink], ids=["touched", "older", "gone"]
)
def test_a_changed_file_is_not_current(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "a.bmp"
    draw_bitmap(path, 10)
    versions = source_versions([str(path), str(tmp_path / "missing")])
    assert versions[str(tmp_path / "missing")] == MISSING
    assert are_current(versions)
    change(path)
    assert not are_current(versions)


@pytest.mark.parametrize(
    "path", ["no-such-file", "file/below", "a" * 5000, "a\0b", "http://x/y", "s3://no-key", "."]
)
def test_what_is_no_file_is_missing_until_it_is_there(tmp_path: Path, path: str) -> None:
    if path.startswith("s3:"):
        pytest.importorskip("boto3")
    (tmp_path / "file").touch()
    name = path if "://" in path else str(tmp_path / path)
    assert source_versions([name]) == {name: MISSING}
    assert are_current({name: MISSING})
    assert not are_current({name: "5:1-1"})


def test_a_file_that_can_not_be_asked_for_is_never_current(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise PermissionError

    monkeypatch.setattr(files, "state", fail)
    assert source_versions(["file"]) == {"file": UNKNOWN}
    assert not are_current({"file": UNKNOWN})


@pytest.fixture
def preparer(tmp_path: Path) -> ChunkPreparer:
    return ChunkPreparer(staging=Staging(str(tmp_path)), labels=(), image=ImageOptions(), seed=0)


def test_an_image_replaced_by_an_older_one_of_its_size_is_prepared_anew(
    tmp_path: Path, preparer: ChunkPreparer
) -> None:
    path = tmp_path / "a.bmp"
    draw_bitmap(path, 10)
    row = Row(id="a", uri=str(path), categories={"layout": "x"}).to_bytes()
    first = preparer.prepare(0, [row])
    size_bytes = path.stat().st_size
    replace_by_older(path)
    assert path.stat().st_size == size_bytes
    second = preparer.prepare(0, [row])
    assert second.pixels.tolist() != first.pixels.tolist()
    assert preparer.prepare(0, [row]).to_bytes() == second.to_bytes()


def test_finding_a_prepared_chunk_reads_no_image_and_lists_no_folder(
    tmp_path: Path, preparer: ChunkPreparer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "with [2024]?*"
    draw_receipt(folder / "a.jpg", 1)
    size_bytes = (folder / "a.jpg").stat().st_size
    (folder / "large.jpg").write_bytes(bytes(size_bytes + 1))
    uris = [str(folder / name) for name in ("a.jpg", "large.jpg", "no.jpg")]
    rows = [
        Row(id=uri, uri=uri, categories={"layout": "x"}).to_bytes()
        for uri in [*uris, "http://host/b.jpg"]
    ]
    preparer = replace(preparer, image=ImageOptions(max_input_bytes=size_bytes))
    chunk = preparer.prepare(0, rows)
    assert chunk.ids == (uris[0],)
    reasons = sorted(each.reason for each in chunk.rejected)
    assert reasons == ["file_missing", "file_too_large", "unreadable"]
    for name in ("os.scandir", "os.listdir", "os.walk", "beam_jobs.prepare.preparer.store_image"):
        monkeypatch.setattr(name, None)
    assert preparer.prepare(0, rows).to_bytes() == chunk.to_bytes()


@pytest.mark.parametrize(("written", "stored"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_an_image_is_found_in_another_form_of_unicode(
    tmp_path: Path, preparer: ChunkPreparer, written: str, stored: str
) -> None:
    path = tmp_path / "Café" / unicodedata.normalize(stored, "reçu.jpg")  # a mixture
    draw_receipt(path, 1)
    uri = str(tmp_path / "Café" / unicodedata.normalize(written, "reçu.jpg"))
    assert uri != str(path)
    row = Row(id="a", uri=uri, categories={"layout": "x"}).to_bytes()
    chunk = preparer.prepare(0, [row])
    assert (chunk.ids, chunk.rejected) == (("a",), ())
    assert chunk.source_versions.keys() == {uri, str(path)}
    assert preparer.prepare(0, [row]).to_bytes() == chunk.to_bytes()
    draw_receipt(Path(uri), 2)  # a file of the very name has come since
    assert preparer.prepare(0, [row]).pixels.tolist() != chunk.pixels.tolist()


def test_a_file_that_is_there_in_no_form_is_missing(preparer: ChunkPreparer) -> None:
    row = Row(id="a", uri="/nowhere/reçu.jpg", categories={"layout": "x"}).to_bytes()
    [rejected] = preparer.prepare(0, [row]).rejected
    assert (rejected.reason, rejected.message) == (
        "file_missing",
        "/nowhere/reçu.jpg does not exist",
    )
