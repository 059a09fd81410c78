"""COMPLETED: the versions of a dataset directory.

A version exists when COMPLETED names it. The file is written last and as a whole, so a version is
published in one step; it has the checksum of each manifest, and a manifest has those of all other
files of its version.
"""

import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Self

import google_crc32c

from schemas import versioned_json
from schemas.manifest import Manifest
from schemas.typed_json import parse_as

FORMAT = "tillroll-versions"
FORMAT_VERSION = 2  # of the whole directory
FIRST_VERSION = 1
_CHECKSUM = "crc32c"
_REPAIR = "restore it from a copy, or build the dataset again"
_FORMAT_1 = re.compile(rb"[0-9a-f]{64}\n")


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version: its number, from 1, and the hex SHA-256 of its manifest."""

    number: int
    manifest_sha256: str

    @classmethod
    def of(cls, number: int, manifest: bytes) -> Self:
        """Makes the entry of the version that these bytes of a manifest describe."""
        return cls(number=number, manifest_sha256=hashlib.sha256(manifest).hexdigest())

    def check(self, manifest: bytes) -> None:
        """Checks that the bytes of a manifest are those of this version.

        Raises:
          ValueError: they aren't.
        """
        if self != Version.of(self.number, manifest):
            raise ValueError(
                "does not match COMPLETED: one of the two is damaged, or another version of "
                "tillroll wrote them; restore both from a copy, or build the dataset again"
            )

    def parse(self, manifest: bytes) -> Manifest:
        """Reads the manifest of this version.

        Raises:
          ValueError: the bytes are not a manifest, or that of another version.
        """
        parsed = Manifest.from_json(manifest)
        if parsed.version != self.number:
            raise ValueError(f"describes version {parsed.version}, not {self.number}: {_REPAIR}")
        return parsed


@dataclass(frozen=True, kw_only=True)
class Versions:
    """All versions of a dataset directory.

    Attributes:
      versions: the versions, the newest last.
      ended: numbers, ascending, of the versions that there are no more, as receipts in them had to
        be forgotten.
    """

    versions: tuple[Version, ...]
    ended: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        numbers = [version.number for version in self.versions]
        if not numbers or numbers != sorted(set(numbers)) or numbers[0] < 1:
            raise ValueError(f"versions are numbered {numbers}, must be ascending from 1 on")
        ended = list(self.ended)
        if ended != sorted(set(ended) - set(numbers)) or (ended and ended[0] < 1):
            raise ValueError(f"ended versions are {ended}, must be ascending and not in {numbers}")

    @property
    def newest(self) -> Version:
        return self.versions[-1]

    @classmethod
    def first(cls, manifest: bytes) -> Self:
        """Makes the versions of a dataset that has only version 1, with these bytes of manifest."""
        return cls(versions=(Version.of(FIRST_VERSION, manifest),))

    def adding(self, number: int, manifest: bytes) -> Self:
        """Returns the versions with one more, which these bytes of a manifest describe."""
        return replace(self, versions=(*self.versions, Version.of(number, manifest)))

    def ending(self, numbers: Collection[int]) -> Self:
        """Returns the versions without some; at least one must stay."""
        return replace(
            self,
            versions=tuple(one for one in self.versions if one.number not in numbers),
            ended=tuple(sorted({*self.ended, *numbers})),
        )

    def find(self, number: int | None) -> Version:
        """Returns a version, None for the newest.

        Raises:
          ValueError: there is no such version.
        """
        if number is None:
            return self.newest
        for version in self.versions:
            if version.number == number:
                return version
        known = ", ".join(str(version.number) for version in self.versions)
        if number in self.ended:
            raise ValueError(
                f"version {number} has ended, as receipts in it had to be forgotten: choose one of "
                f"{known} (pipeline.train goes on with the newest by --other-data)"
            )
        raise ValueError(f"there is no version {number}: choose one of {known}")

    def to_bytes(self) -> bytes:
        """The file's bytes; equal versions give equal bytes."""
        values = asdict(self)
        # Nothing else has a checksum of this file.
        checksum = google_crc32c.value(json.dumps(values, sort_keys=True).encode())
        text = versioned_json.to_text(
            {**values, _CHECKSUM: checksum}, format_name=FORMAT, version=FORMAT_VERSION
        )
        return text.encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of `to_bytes`.

        Raises:
          ValueError: the bytes are not such a file, or of another format version.
        """
        if is_format_1(data):
            raise ValueError(
                "the dataset has format version 1, this tillroll reads 2: build the dataset again, "
                "or install tillroll 0.2"
            )
        values = versioned_json.from_text(
            data, format_name=FORMAT, newest_version=FORMAT_VERSION, repair=_REPAIR
        )
        values.pop(_CHECKSUM, None)
        try:
            versions = parse_as(cls, values, "COMPLETED")
            # This compares the checksum, too. JSON can say the same in many ways, and a damaged
            # byte may be one of them.
            if versions.to_bytes() != data:
                raise ValueError("its checksum is wrong")
        except ValueError as error:
            raise ValueError(f"damaged {FORMAT} file: {error}; {_REPAIR}") from error
        return versions


def is_format_1(data: bytes) -> bool:
    """Returns whether the bytes are those of COMPLETED in format version 1: a checksum alone."""
    return _FORMAT_1.fullmatch(data) is not None
