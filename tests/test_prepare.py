"""What is an image's fault, and what is the machine's."""

from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

import beam_jobs.prepare
from beam_jobs.image import ImageOptions
from beam_jobs.prepare import ChunkPreparer
from beam_jobs.row import Row
from tests.conftest import draw_receipt


def preparer(folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> ChunkPreparer:
    """One whose images fail with this error."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(beam_jobs.prepare, "store_image", fail)
    return ChunkPreparer(
        directory=str(folder / "prepared"), labels=(), image=ImageOptions(), seed=0
    )


@pytest.fixture
def row(tmp_path: Path) -> bytes:
    draw_receipt(tmp_path / "receipt.jpg", 1)
    uri = str(tmp_path / "receipt.jpg")
    return Row(id="receipt", uri=uri, categories={"layout": "alpha"}).to_bytes()


def test_an_unforeseen_error_costs_one_image(
    tmp_path: Path, row: bytes, monkeypatch: pytest.MonkeyPatch
):
    chunk = preparer(tmp_path, monkeypatch, ArithmeticError("odd")).prepare(0, [row])
    [rejected] = chunk.rejected
    assert (rejected.id, rejected.reason) == ("receipt", "failed")
    assert rejected.message == "preparing failed: ArithmeticError('odd')"


def test_a_lack_of_memory_is_not_the_image_s_fault(
    tmp_path: Path, row: bytes, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(MemoryError):
        preparer(tmp_path, monkeypatch, MemoryError()).prepare(0, [row])
