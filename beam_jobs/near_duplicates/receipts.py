"""Receipts with their fingerprints, on their way to the worker that compares them."""

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from beam_jobs.near_duplicates.candidates import WordArray, concatenate_words
from beam_jobs.near_duplicates.pairs import find_pairs
from beam_jobs.near_duplicates.unite import NEW, NearPair, PairedReceipt
from schemas.fingerprints import Fingerprints


@dataclass(frozen=True, kw_only=True, eq=False)
class FingerprintedReceipts:
    """Some receipts; arrays of shape [n].

    Attributes:
      key: uint64 [n, 2], hash of the id.
      group: uint64, hash of the group; 0 for none.
      split: int32, position of the split; NEW for a new receipt.
      ids: their ids.
      fingerprints: their fingerprints.
      words: uint64 [n, 8] or [n, 16], their words, see `receipt_words`.
    """

    key: npt.NDArray[np.uint64]
    group: npt.NDArray[np.uint64]
    split: npt.NDArray[np.int32]
    ids: tuple[str, ...]
    fingerprints: Fingerprints
    words: WordArray

    def __len__(self) -> int:
        return len(self.key)

    def take(self, rows: npt.NDArray[np.int64]) -> Self:
        """Returns the given receipts."""
        return type(self)(
            key=self.key[rows],
            group=self.group[rows],
            split=self.split[rows],
            ids=tuple(self.ids[row] for row in rows.tolist()),
            fingerprints=self.fingerprints.take(rows),
            words=self.words[rows],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Joins the receipts of all parts."""
        return cls(
            key=np.concatenate([part.key for part in parts]),
            group=np.concatenate([part.group for part in parts]),
            split=np.concatenate([part.split for part in parts]),
            ids=tuple(id_ for part in parts for id_ in part.ids),
            fingerprints=Fingerprints.concatenate(part.fingerprints for part in parts),
            words=concatenate_words([part.words for part in parts]),
        )

    def to_bytes(self) -> bytes:
        """Contents of a staging file."""
        buffer = io.BytesIO()
        np.savez(
            buffer,
            key=self.key,
            group=self.group,
            split=self.split,
            ids=np.frombuffer(json.dumps(self.ids).encode(), np.uint8),
            words=self.words,
            **self.fingerprints.arrays(),
        )
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of `to_bytes`."""
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return cls(
                key=arrays["key"],
                group=arrays["group"],
                split=arrays["split"],
                ids=tuple(json.loads(arrays["ids"].tobytes())),
                fingerprints=Fingerprints.of_arrays(arrays),
                words=arrays["words"],
            )

    def _paired(self, row: int) -> PairedReceipt:
        first, second = self.key[row].tolist()
        split = int(self.split[row])
        return PairedReceipt(
            is_new=split == NEW,
            key=(first, second),
            group=int(self.group[row]),
            split=split,
            id=self.ids[row],
        )

    def pairs(self, wanted: npt.NDArray[np.bool_]) -> list[NearPair]:
        """Finds near-duplicates among receipts that share a word; two old ones are no pair.

        `wanted` are the words to look at, bool, as the words.
        """
        found = find_pairs(self.fingerprints, self.words, self.key, wanted)
        pairs = []
        columns: Iterable[tuple[Any, ...]] = zip(
            *(getattr(found, field.name).tolist() for field in fields(found)), strict=True
        )
        for one, other, *evidence in columns:
            first, second = sorted((self._paired(one), self._paired(other)))
            if second.is_new:
                pairs.append(NearPair(first, second, *evidence))
        return pairs
