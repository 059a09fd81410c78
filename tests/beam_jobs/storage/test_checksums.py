"""Checksums of files that are written or read piece by piece."""

from pathlib import Path

import google_crc32c
import pytest

pytest.importorskip("apache_beam")

from beam_jobs.storage import checksums as module
from beam_jobs.storage.checksums import ChecksumReader, RunningChecksum, checksum
from schemas.manifest import FileChecksum

DATA = bytes(range(256)) * 5
EXPECTED = FileChecksum(size_bytes=1280, crc32c=google_crc32c.value(DATA))


def test_pieces_have_the_checksum_of_the_whole():
    running = RunningChecksum()
    for start in range(0, len(DATA), 7):
        running.update(DATA[start : start + 7])
    assert running.result() == checksum(DATA) == EXPECTED
    assert checksum(b"") == FileChecksum(size_bytes=0, crc32c=0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Offset and length of all that is read, in pieces of 100 bytes."""
    reads = []
    read_range = module.files.read_range

    def record(path: str, offset: int, length: int) -> bytes:
        reads.append((offset, length))
        return read_range(path, offset, length)

    monkeypatch.setattr(module, "_PIECE_BYTES", 100)
    monkeypatch.setattr(module.files, "read_range", record)
    return reads


@pytest.mark.parametrize("size", [1, 7, 99, 100, 101, 250, 1280, 5000])
def test_reads_any_sizes_in_pieces(tmp_path: Path, asked: list[tuple[int, int]], size: int):
    (tmp_path / "file").write_bytes(DATA)
    reader = ChecksumReader(str(tmp_path / "file"))
    parts = [reader.read(size)]
    while parts[-1]:
        parts.append(reader.read(size))
    assert b"".join(parts) == DATA
    assert {len(part) for part in parts[:-2]} <= {size}
    assert reader.finish() == EXPECTED
    assert asked == [(offset, 100) for offset in range(0, 1300, 100)]


@pytest.mark.parametrize("size", [0, 1, 99, 100, 200])
def test_finish_reads_what_is_left(tmp_path: Path, asked: list[tuple[int, int]], size: int):
    (tmp_path / "file").write_bytes(DATA[:size])
    reader = ChecksumReader(str(tmp_path / "file"))
    assert reader.read(30) == DATA[: min(30, size)]
    assert b"".join(reader.pieces()) == DATA[30:size]
    assert reader.finish() == reader.finish() == checksum(DATA[:size])
    assert asked


def test_a_missing_file(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="file does not exist"):
        ChecksumReader(str(tmp_path / "file")).finish()
