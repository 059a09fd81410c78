"""The lookup of a shard: hashes of its records, by which a later build knows them.

What is appended to a dataset may be there already. A build that appends compares hashes, and reads
no old record. A lookup file is an uncompressed `.npz` archive of 48 bytes per record and, where
near-duplicates are looked for, 36 for its text, 4 for each of its numbers and, where images are
compared, 132 for its image.
"""

import io
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from schemas.fingerprints import HASH_WORDS, MAX_NUMBERS, TEXT_WORDS, Fingerprints

HashArray = npt.NDArray[np.uint64]
_DTYPE = np.dtype("<u8")
_HEADERS_BYTES = 1 << 12  # of a lookup file, amply
_FINGERPRINT_BYTES = 4 + 4 * MAX_NUMBERS + 8 * TEXT_WORDS + 4 + 8 * HASH_WORDS  # at most


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordLookup:
    """Hashes of the records of a shard, in their order.

    Attributes:
      key: uint64 [n, 2], of the id.
      pixels: uint64 [n, 2], of the source image, see the feature image/key/pixels.
      labels: uint64 [n], of group, labels and boxes, as stored.
      group: uint64 [n], of the group; 0 for none.
      fingerprints: what tells which are one purchase; None where near-duplicates are not looked
        for, and for those of an older version.
    """

    key: HashArray
    pixels: HashArray
    labels: HashArray
    group: HashArray
    fingerprints: Fingerprints | None = None

    def __len__(self) -> int:
        return len(self.key)

    def take(self, rows: npt.NDArray[Any]) -> Self:
        """Returns some records, by their positions or a mask."""
        return type(self)(
            **{name: getattr(self, name)[rows] for name in _COLUMNS},
            fingerprints=None if self.fingerprints is None else self.fingerprints.take(rows),
        )

    def to_bytes(self) -> bytes:
        """The file's contents; equal lookups give equal bytes."""
        buffer = io.BytesIO()
        columns = {name: getattr(self, name).astype(_DTYPE) for name in _COLUMNS}
        fingerprints = {} if self.fingerprints is None else self.fingerprints.arrays()
        np.savez(buffer, **columns, **fingerprints)
        return buffer.getvalue()

    @staticmethod
    def max_bytes(records: int) -> int:
        """Returns the bytes that the lookup file of so many records has at most."""
        return records * (48 + _FINGERPRINT_BYTES) + _HEADERS_BYTES

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of `to_bytes`.

        Raises:
          ValueError: the bytes are not a lookup file.
        """
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                has_fingerprints = Fingerprints.are_in(arrays)
                return cls(
                    **{name: arrays[name] for name in _COLUMNS},
                    fingerprints=Fingerprints.of_arrays(arrays) if has_fingerprints else None,
                )
        except Exception as error:  # zipfile and NumPy raise many kinds over a damaged file
            raise ValueError(f"not a lookup file: {error}") from error


_COLUMNS = ("key", "pixels", "labels", "group")
