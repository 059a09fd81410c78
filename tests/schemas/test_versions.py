"""COMPLETED: its round trip, the newest version, and what it refuses."""

import re

import pytest

from schemas.versions import FORMAT_VERSION, Version, Versions

MANIFESTS = {1: b"first", 2: b"second", 4: b"fourth"}
VERSIONS = Versions(versions=tuple(Version.of(at, data) for at, data in MANIFESTS.items()))
RESTORE = "restore it from a copy, or build the dataset again"


def test_round_trip() -> None:
    data = VERSIONS.to_bytes()
    assert Versions.from_bytes(data) == VERSIONS
    assert Versions.from_bytes(data).to_bytes() == data
    assert data.endswith(b"}\n")


def test_the_newest_is_the_last() -> None:
    assert VERSIONS.newest.number == 4
    assert VERSIONS.find(None) == VERSIONS.newest
    assert VERSIONS.find(2) == Version.of(2, b"second")
    assert Versions.first(b"first").versions == VERSIONS.versions[:1]


def test_a_version_that_has_ended_is_named() -> None:
    left = VERSIONS.adding(5, b"fifth").ending([2, 4])
    assert [one.number for one in left.versions] == [1, 5]
    assert Versions.from_bytes(left.to_bytes()) == left
    with pytest.raises(
        ValueError, match=r"^version 4 has ended, as receipts in it had to be forgo"
    ):
        left.find(4)
    assert left.ending([1]).ended == (1, 2, 4)
    with pytest.raises(ValueError, match="must be ascending"):
        left.ending([1, 5])


@pytest.mark.parametrize("ended", [(2, 1), (4,), (0,), (3, 3)])
def test_numbers_of_ended_versions(ended: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must be ascending and not in"):
        Versions(versions=VERSIONS.versions, ended=ended)


@pytest.mark.parametrize("number", [3, 0, -1, 5])
def test_a_version_that_is_not_there(number: int) -> None:
    sentence = f"there is no version {number}: choose one of 1, 2, 4"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        VERSIONS.find(number)


def test_a_version_belongs_to_the_bytes_of_one_manifest() -> None:
    for number, data in MANIFESTS.items():
        VERSIONS.find(number).check(data)
        for other in {*MANIFESTS.values(), b"", data + b"\n"} - {data}:
            with pytest.raises(
                ValueError, match=r"^does not match COMPLETED: one of the two is damaged"
            ):
                VERSIONS.find(number).check(other)


@pytest.mark.parametrize("numbers", [(), (0,), (2, 1), (1, 1)])
def test_numbers_ascend(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must be ascending from 1 on"):
        Versions(versions=tuple(Version.of(at, b"") for at in numbers))


def test_format_1_is_refused_with_advice() -> None:
    sentence = (
        "the dataset has format version 1, this tillroll reads 2: build the dataset again, or "
        "install tillroll 0.2"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        Versions.from_bytes(b"0a" * 32 + b"\n")


def test_a_newer_format_is_refused() -> None:
    data = VERSIONS.to_bytes().replace(b'"format_version": 2', b'"format_version": 3')
    sentence = (
        f"the tillroll-versions file has format version 3, this tillroll reads up to "
        f"{FORMAT_VERSION}: install a newer tillroll, or {RESTORE}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        Versions.from_bytes(data)


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"[]", b"complete\n"])
def test_refuses_what_is_no_such_file(data: bytes) -> None:
    with pytest.raises(ValueError, match=f"^not a tillroll-versions file: .*; {RESTORE}$"):
        Versions.from_bytes(data)


def test_every_flipped_bit_is_an_error() -> None:
    data = VERSIONS.to_bytes()
    for position in range(len(data)):
        for bit in range(8):
            flipped = data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]
            with pytest.raises(ValueError, match=f"{RESTORE}$"):
                Versions.from_bytes(flipped)
