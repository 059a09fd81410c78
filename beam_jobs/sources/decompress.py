"""Decompression of tables, complete or an error.

Beam's reader takes the end of a file for the end of its data: a table that was cut off would lose
its last rows without a word.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

import zstandard

from beam_jobs.errors import BuildError

_SLICE_BYTES = 1 << 14  # decompressed at a time: some formats make 30,000 bytes of one
_ZSTD_MAX_WINDOW_BYTES = 1 << 31


class _Decompressor(Protocol):
    """Decompressor of one member; a compressed file is a sequence of members."""

    @property
    def eof(self) -> bool:
        """True if the member is complete; its checksum is right then."""

    @property
    def unused_data(self) -> bytes:
        """Bytes after the end of the member."""

    def decompress(self, data: bytes, /) -> bytes: ...


def _zstd() -> _Decompressor:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
    return decompressor.decompressobj()


_DECOMPRESSORS: dict[str, Callable[[], _Decompressor]] = {
    ".gz": partial(zlib.decompressobj, zlib.MAX_WBITS | 16),
    ".bz2": bz2.BZ2Decompressor,
    ".deflate": zlib.decompressobj,
    ".zst": _zstd,
    ".zstd": _zstd,
    ".xz": lzma.LZMADecompressor,
    ".lzma": lzma.LZMADecompressor,
}
_ERRORS = (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, EOFError)


def compression(path: str) -> str:
    """The suffix that names how a file is compressed, "" if it is not."""
    name = path.lower()
    return next((suffix for suffix in _DECOMPRESSORS if name.endswith(suffix)), "")


def decompress(path: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the contents of a compressed file; zeros may follow its members, nothing else.

    Args:
      path: its name, which says how it is compressed.
      pieces: its bytes.

    Raises:
      BuildError: the file is damaged, or ends too early.
    """
    make = _DECOMPRESSORS[compression(path)]
    member: _Decompressor | None = make()
    for data in _slices(pieces):
        while data:
            if member is None:  # tape archives and block devices pad with zeros
                if not (data := data.lstrip(b"\0")):
                    break
                member = make()
            try:
                yield member.decompress(data)
            except _ERRORS as error:
                raise BuildError(
                    f"{path} can't be decompressed, {error}: copy or write it again"
                ) from error
            data = member.unused_data
            if member.eof:
                member = None
    if member is not None:
        raise BuildError(
            f"{path} ends before its compressed data does: it was cut off; copy or write it again"
        )


def _slices(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), _SLICE_BYTES):
            yield piece[start : start + _SLICE_BYTES]
