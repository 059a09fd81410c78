"""Preparing a chunk: an image's fault rejects it, the machine's ends the build."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

import beam_jobs.prepare.preparer
from beam_jobs.errors import BuildError
from beam_jobs.images.image import ImageOptions
from beam_jobs.prepare.preparer import ChunkPreparer
from beam_jobs.prepare.staging import Staging
from beam_jobs.sources.row import Row
from tests.support.receipts import contents, draw_receipt


def preparer(folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> ChunkPreparer:
    """One whose images fail with this error."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(beam_jobs.prepare.preparer, "store_image", fail)
    return ChunkPreparer(staging=Staging(str(folder)), labels=(), image=ImageOptions(), seed=0)


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
    with pytest.raises(BuildError) as caught:
        preparer(tmp_path, monkeypatch, MemoryError()).prepare(0, [row])
    assert str(caught.value) == (
        f"this machine has too little memory to prepare {tmp_path / 'receipt.jpg'} (id 'receipt'): "
        "give it more, or run fewer workers, and run the same command again; an image for which "
        "there is still too little is then rejected"
    )


def truncate_to_nothing(path: Path) -> None:
    path.write_bytes(b"")


def truncate_to_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def lose_the_last_block(path: Path) -> None:
    size_bytes = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size_bytes // 2].ljust(size_bytes, b"\0"))


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 4
    path.write_bytes(data)


DAMAGES = [truncate_to_nothing, truncate_to_half, lose_the_last_block, flip_a_bit, Path.unlink]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("suffix", [".npz", ".tfrecord"])
def test_a_chunk_with_a_damaged_staging_file_is_prepared_anew(
    tmp_path: Path, row: bytes, suffix: str, damage: Callable[[Path], None]
):
    preparer = ChunkPreparer(
        staging=Staging(str(tmp_path)), labels=(), image=ImageOptions(), seed=0
    )
    chunk = preparer.prepare(0, [row]).to_bytes()
    prepared = tmp_path / "_staging" / "prepared"
    before = contents(prepared)
    [path] = prepared.glob(f"*{suffix}")
    damage(path)
    assert preparer.prepare(0, [row]).to_bytes() == chunk
    assert contents(prepared) == before
