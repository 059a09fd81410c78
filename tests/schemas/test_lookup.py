"""The lookup of a shard: its round trip, and what it refuses."""

import io
from dataclasses import replace

import numpy as np
import pytest

from schemas.fingerprints import HASH_WORDS, MAX_NUMBERS, Fingerprints, TextFingerprint
from schemas.lookup import RecordLookup

LOOKUP = RecordLookup(
    key=np.array([[1, 2], [2**64 - 1, 0], [3, 3]], np.uint64),
    pixels=np.array([[5, 6], [7, 8], [9, 10]], np.uint64),
    labels=np.array([11, 12, 13], np.uint64),
    group=np.array([0, 14, 2**63], np.uint64),
)


def as_lists(lookup: RecordLookup) -> list:
    return [lookup.key.tolist(), lookup.pixels.tolist(), *map(list, (lookup.labels, lookup.group))]


def test_bytes_round_trip() -> None:
    again = RecordLookup.from_bytes(LOOKUP.to_bytes())
    assert as_lists(again) == as_lists(LOOKUP)
    assert again.to_bytes() == LOOKUP.to_bytes()
    assert len(again) == 3


def test_some_records() -> None:
    assert as_lists(LOOKUP.take(np.array([2, 0]))) == [
        [[3, 3], [1, 2]],
        [[9, 10], [5, 6]],
        [13, 11],
        [2**63, 0],
    ]
    assert len(LOOKUP.take(LOOKUP.group > 0)) == 2


def test_forty_eight_bytes_per_record() -> None:
    large = LOOKUP.take(np.zeros(10_000, np.int64))
    assert len(large.to_bytes()) < 48 * 10_000 + 2_000


@pytest.mark.parametrize("records", [0, 1, 1000])
def test_no_file_is_larger_than_the_greatest_size(records: int) -> None:
    texts = [TextFingerprint(numbers=range(MAX_NUMBERS))] * records
    images = np.ones((records, HASH_WORDS), np.uint64)
    lookup = replace(
        LOOKUP.take(np.zeros(records, np.int64)), fingerprints=Fingerprints.of(texts, images)
    )
    assert len(lookup.to_bytes()) <= RecordLookup.max_bytes(records)


def test_fingerprints_of_another_version_are_left_out() -> None:
    buffer = io.BytesIO(LOOKUP.to_bytes())
    with np.load(buffer) as arrays:
        old = {**arrays, "number_counts": np.ones(3, "<i4"), "number_values": np.ones(3, "<u4")}
    buffer = io.BytesIO()
    np.savez(buffer, **old)
    read = RecordLookup.from_bytes(buffer.getvalue())
    assert read.fingerprints is None
    assert as_lists(read) == as_lists(LOOKUP)


@pytest.mark.parametrize("data", [b"", b"PK", LOOKUP.to_bytes()[:-30]])
def test_refuses_what_is_no_lookup(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^not a lookup file: "):
        RecordLookup.from_bytes(data)
