"""Size and checksum of a file, gathered while it is written or read piece by piece."""

from collections.abc import Iterator

import google_crc32c

from beam_jobs.storage import files
from schemas.manifest import FileChecksum

_PIECE_BYTES = 1 << 24


class RunningChecksum:
    """Counts the bytes that `update` is given, and their CRC32C."""

    def __init__(self) -> None:
        self._size_bytes = 0
        self._crc = google_crc32c.Checksum()

    def update(self, data: bytes) -> None:
        """Adds bytes behind those seen so far."""
        self._size_bytes += len(data)
        self._crc.update(data)

    def result(self) -> FileChecksum:
        """Returns size and checksum of all bytes so far."""
        return FileChecksum(
            size_bytes=self._size_bytes, crc32c=int.from_bytes(self._crc.digest(), "big")
        )


def checksum(data: bytes) -> FileChecksum:
    """Returns size and checksum of a whole file's bytes."""
    running = RunningChecksum()
    running.update(data)
    return running.result()


class ChecksumReader:
    """Reads a file from its start to its end, in bounded memory, and gathers its checksum.

    Errors are those of `files.read_range`.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._checksum = RunningChecksum()
        self._offset = 0  # of the file, behind the piece
        self._piece = memoryview(b"")
        self._position = 0  # in the piece
        self._last = False

    def read(self, size: int) -> bytes:
        """Returns the next `size` bytes, fewer only at the end of the file."""
        parts = []
        while size > 0 and self._fill():
            part = self._piece[self._position : self._position + size]
            self._position += len(part)
            size -= len(part)
            parts.append(part)
        return b"".join(parts)

    def pieces(self) -> Iterator[bytes]:
        """Yields the rest of the file."""
        while self._fill():
            yield bytes(self._piece[self._position :])
            self._position = len(self._piece)

    def finish(self) -> FileChecksum:
        """Reads to the end of the file, and returns the size and checksum of the whole."""
        for _ in self.pieces():
            pass
        return self._checksum.result()

    def _fill(self) -> bool:
        """Fetches the next piece if this one is used up; returns False at the end of the file."""
        if self._position == len(self._piece) and not self._last:
            data = files.read_range(self._path, self._offset, _PIECE_BYTES)
            self._checksum.update(data)
            self._offset += len(data)
            self._piece, self._position = memoryview(data), 0
            # `read_range` is short only where the file ends.
            self._last = len(data) < _PIECE_BYTES
        return self._position < len(self._piece)
