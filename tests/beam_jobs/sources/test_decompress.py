"""Compressed tables: read to their end whatever compressed them, or an error."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

import zstandard
from apache_beam.io.filesystem import CompressionTypes

from beam_jobs.errors import BuildError
from beam_jobs.sources.decompress import compression, decompress

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".deflate": zlib.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    ".zstd": zstandard.ZstdCompressor().compress,
    ".xz": lzma.compress,
    ".lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
}
TEXT = b"".join(b"line %d\n" % number for number in range(3_000))
TABLES = {
    "csv": "image,layout\n" + "".join(f"{number}.jpg,shop\n" for number in range(40)),
    "jsonl": "".join(f'{{"image": "{number}.jpg", "layout": "shop"}}\n' for number in range(40)),
}
CUT_OFF = "ends before its compressed data does: it was cut off; copy or write it again"


def decompressed(suffix: str, data: bytes, *, piece_bytes: int = 1 << 20) -> bytes:
    pieces = [data[start : start + piece_bytes] for start in range(0, len(data), piece_bytes)]
    return b"".join(decompress(f"t{suffix}", pieces))


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("piece_bytes", [1, 1 << 20])
def test_members_and_zeros_after_them_are_read(suffix: str, piece_bytes: int) -> None:
    first, second = COMPRESSIONS[suffix](TEXT), COMPRESSIONS[suffix](b"more\n")
    for data, expected in (
        (first, TEXT),
        (first + second, TEXT + b"more\n"),
        (first + bytes(512) + second + bytes(3), TEXT + b"more\n"),
        (COMPRESSIONS[suffix](b""), b""),
    ):
        assert decompressed(suffix, data, piece_bytes=piece_bytes) == expected


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_a_file_that_was_cut_off_anywhere_is_an_error(suffix: str) -> None:
    member = COMPRESSIONS[suffix](TEXT[:100])
    lengths = {*range(len(member)), *range(len(member) + 1, 2 * len(member))}
    assert len(lengths) > 80
    for length in lengths:
        with pytest.raises(BuildError) as caught:
            decompressed(suffix, (member + member)[:length])
        assert str(caught.value) == f"t{suffix} {CUT_OFF}"


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("damage", ["another_format", "rubbish_behind"])
def test_a_damaged_file_is_an_error(suffix: str, damage: str) -> None:
    data = TEXT if damage == "another_format" else COMPRESSIONS[suffix](TEXT) + b"rubbish" * 9
    with pytest.raises(BuildError, match=rf"^t{suffix} (can't be decompressed, |{CUT_OFF}$)"):
        decompressed(suffix, data)


def test_a_wrong_checksum_is_an_error() -> None:
    data = bytearray(gzip.compress(TEXT))
    data[-8] ^= 1
    sentence = r"t\.gz can't be decompressed, .*incorrect data check: copy or write it again"
    with pytest.raises(BuildError, match=sentence):
        decompressed(".gz", bytes(data))


@pytest.mark.parametrize("name", [f"t{suffix}" for suffix in COMPRESSIONS] + ["t.csv", "t.GZ"])
def test_the_same_names_are_compressed_as_to_beam(name: str) -> None:
    beams = CompressionTypes.detect_compression_type(name)
    assert bool(compression(name)) == (beams != CompressionTypes.UNCOMPRESSED)


@pytest.mark.parametrize("name", ["t.csv.gz", "t.jsonl.gz", "t.csv.zst", "t.jsonl.bz2"])
def test_a_build_reads_all_of_a_compressed_table(
    tmp_path: Path, build: Callable[..., int], capfd: pytest.CaptureFixture[str], name: str
) -> None:
    kind, suffix = Path(Path(name).stem).suffix[1:], Path(name).suffix
    data = COMPRESSIONS[suffix](TABLES[kind].encode())
    options = (tmp_path / "out", "--dry-run", f"--input-format={kind}")
    (tmp_path / name).write_bytes(data)
    assert build(tmp_path / name, *options) == 0
    assert "inputs         40\n" in capfd.readouterr().out
    (tmp_path / name).write_bytes(data[:-1])
    assert build(tmp_path / name, *options) == 1
    assert capfd.readouterr().err == f"error: {tmp_path / name} {CUT_OFF}\n"
