"""TFRecord framing: each record lies in a frame, one frame after the other.

    length | CRC of length | payload      | CRC of payload
    8      | 4             | length bytes | 4 bytes

A payload of 10 bytes has a frame of 26. Numbers are little-endian; CRCs are CRC32C, masked.

Format: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

import struct
from collections.abc import Iterator
from typing import Protocol, TypeVar

import google_crc32c
import numpy as np
import numpy.typing as npt

# Slices of arrays share their memory, where bytes are copied.
Bytes = TypeVar("Bytes", bytes, npt.NDArray[np.uint8])
_HEADER = struct.Struct("<QI")  # payload length, masked CRC32C of these eight bytes
_FOOTER = struct.Struct("<I")  # masked CRC32C of the payload
PAYLOAD_START = _HEADER.size  # byte of a frame
OVERHEAD_BYTES = _HEADER.size + _FOOTER.size
_READ_BYTES = 1 << 20


class SupportsRead(Protocol):
    """A file that is read from its start to its end."""

    def read(self, size: int, /) -> bytes:
        """Reads at most `size` bytes; none at the end of the file."""


class CorruptRecordError(ValueError):
    """A record can't be trusted; `offset` is the byte at which its frame starts."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


def frame(payload: bytes) -> bytes:
    """Wraps one record's payload for a TFRecord file."""
    length = struct.pack("<Q", len(payload))
    return b"".join(
        (length, _FOOTER.pack(_masked_crc(length)), payload, _FOOTER.pack(_masked_crc(payload)))
    )


def unframe(framed: Bytes, offset: int) -> Bytes:
    """Returns the payload of one framed record; `offset` is its position in the file, for errors.

    Raises:
      CorruptRecordError: a length or checksum is wrong.
    """
    # The length has a checksum of its own, which is checked first: a reader that trusted a damaged
    # length would ask for exabytes.
    length = _payload_length(framed[: _HEADER.size], offset)
    if length != len(framed) - OVERHEAD_BYTES:
        raise CorruptRecordError(
            offset, f"record holds {length} bytes, {len(framed) - OVERHEAD_BYTES} expected"
        )
    return _checked_payload(framed[_HEADER.size :], length, offset)


def read_records(file: SupportsRead) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, payload) of each record of a file read from its start.

    Raises:
      CorruptRecordError: a checksum is wrong or the file ends inside a record.
    """
    offset = 0
    while header := _read_exactly(file, _HEADER.size):
        length = _payload_length(header, offset)
        yield offset, _checked_payload(_read_exactly(file, length + _FOOTER.size), length, offset)
        offset += length + OVERHEAD_BYTES


def _payload_length(header: Bytes, offset: int) -> int:
    if len(header) < _HEADER.size:
        raise CorruptRecordError(offset, "file ends inside a record's header")
    length, crc = _HEADER.unpack(bytes(header))
    if crc != _masked_crc(header[:8]):
        raise CorruptRecordError(offset, "checksum of the record's length is wrong")
    return int(length)


def _checked_payload(rest: Bytes, length: int, offset: int) -> Bytes:
    if len(rest) < length + _FOOTER.size:
        raise CorruptRecordError(offset, "file ends inside a record")
    payload = rest[:length]
    if _FOOTER.unpack(bytes(rest[length:]))[0] != _masked_crc(payload):
        raise CorruptRecordError(offset, "checksum of the record's bytes is wrong")
    return payload


def _read_exactly(file: SupportsRead, size: int) -> bytes:
    """Reads `size` bytes, fewer only at the end of the file: a remote file may return less."""
    pieces = []
    # In pieces: a damaged length whose checksum happens to fit must not reserve its memory at once.
    while size > 0 and (piece := file.read(min(size, _READ_BYTES))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _masked_crc(data: Bytes) -> int:
    """CRC32C as the format masks it: turned right by 15 bits, plus a constant, modulo 2**32."""
    # A CRC over bytes that hold their own CRC has weaknesses, so the format never stores a plain
    # one. Turning right by 15 bits puts the lowest 15 on top: of the CRC 1, 1 << 17 = 00020000, and
    # with the constant A284EAD8. Python's integers have no 32 bits to fall out of, hence the mask
    # at the end.
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
