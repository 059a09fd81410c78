"""TFRecord framing: its bytes, and that no damage goes unnoticed."""

import io
from typing import BinaryIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.tfrecord import OVERHEAD_BYTES, CorruptRecordError, frame, read_records, unframe

PAYLOADS = (b"hello", b"", b"\x00" * 1000, b"third")
# Length, masked CRC32C of the length, payload, masked CRC32C of the payload; the CRCs were computed
# bit by bit from the Castagnoli polynomial, not by the library that the module uses.
GOLDEN_HELLO = "0500000000000000eab2043e68656c6c6fbb1f1c19"
GOLDEN_EMPTY = "000000000000000029039807d8ea82a2"


def masked_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class ShortReads(io.BytesIO):
    """A file that returns at most three bytes a read, as a remote one may."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size, 3) if size is not None and size >= 0 else 3)


def test_golden_bytes() -> None:
    assert frame(b"hello").hex() == GOLDEN_HELLO
    assert frame(b"").hex() == GOLDEN_EMPTY


@given(st.binary(max_size=64))
@settings(deadline=None, max_examples=50)
def test_frame_follows_the_specification(payload: bytes) -> None:
    length = len(payload).to_bytes(8, "little")
    assert frame(payload) == (
        length
        + masked_crc32c(length).to_bytes(4, "little")
        + payload
        + masked_crc32c(payload).to_bytes(4, "little")
    )
    assert len(frame(payload)) == len(payload) + OVERHEAD_BYTES
    assert unframe(frame(payload), 0) == payload


@pytest.mark.parametrize("kind", [io.BytesIO, ShortReads], ids=["whole_reads", "short_reads"])
def test_reads_records_and_their_offsets(kind: type[io.BytesIO]) -> None:
    file: BinaryIO = kind(b"".join(map(frame, PAYLOADS)))
    offsets, payloads = zip(*read_records(file), strict=True)
    assert payloads == PAYLOADS
    assert offsets == (0, 21, 37, 1053)


def test_an_empty_file_holds_no_record() -> None:
    assert list(read_records(io.BytesIO(b""))) == []


@given(st.binary(max_size=40), st.data())
@settings(deadline=None, max_examples=200)
def test_any_flipped_byte_is_detected(payload: bytes, data: st.DataObject) -> None:
    before = frame(b"the record before")
    framed = bytearray(frame(payload))
    place = data.draw(st.integers(0, len(framed) - 1))
    framed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptRecordError) as caught:
        unframe(bytes(framed), len(before))
    assert caught.value.offset == len(before)
    records = read_records(io.BytesIO(before + framed))
    assert next(records) == (0, b"the record before")
    with pytest.raises(CorruptRecordError, match=r"is wrong|file ends inside") as caught:
        next(records)
    assert caught.value.offset == len(before)


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        pytest.param(0, "checksum of the record's length is wrong", id="length"),
        pytest.param(8, "checksum of the record's length is wrong", id="checksum_of_length"),
        pytest.param(12, "checksum of the record's bytes is wrong", id="payload"),
        pytest.param(-1, "checksum of the record's bytes is wrong", id="checksum_of_payload"),
    ],
)
def test_says_which_part_is_wrong(place: int, sentence: str) -> None:
    framed = bytearray(frame(b"hello"))
    framed[place] ^= 1
    with pytest.raises(CorruptRecordError) as caught:
        list(read_records(io.BytesIO(bytes(framed))))
    assert str(caught.value) == sentence


@pytest.mark.parametrize("size", range(1, 21))
def test_a_file_that_ends_inside_a_record(size: int) -> None:
    cut = frame(b"first") + frame(b"hello")[:size]
    records = read_records(io.BytesIO(cut))
    assert next(records) == (0, b"first")
    with pytest.raises(CorruptRecordError) as caught:
        next(records)
    assert caught.value.offset == 21
    part = "a record's header" if size < 12 else "a record"
    assert str(caught.value) == f"file ends inside {part}"


@pytest.mark.parametrize(
    ("framed", "sentence"),
    [
        pytest.param(b"", "file ends inside a record's header", id="nothing"),
        pytest.param(
            frame(b"hello")[:-1], "record holds 5 bytes, 4 expected", id="one_byte_missing"
        ),
        pytest.param(
            frame(b"hello") + b"x", "record holds 5 bytes, 6 expected", id="one_byte_too_many"
        ),
    ],
)
def test_unframe_refuses_another_length(framed: bytes, sentence: str) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        unframe(framed, 77)
    assert str(caught.value) == sentence
    assert caught.value.offset == 77


def test_an_array_is_unframed_without_a_copy():
    framed = np.frombuffer(frame(b"payload"), np.uint8).copy()
    payload = unframe(framed, 0)
    assert payload.tobytes() == b"payload"
    assert np.shares_memory(payload, framed)
    for damaged in range(len(framed)):
        framed[damaged] ^= 1
        with pytest.raises(CorruptRecordError):
            unframe(framed, 0)
        framed[damaged] ^= 1
