"""References to prepared records: columns of some 60 bytes per record, never image bytes."""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from beam_jobs.prepare.staging import Staging
from beam_jobs.sources.row import Row
from beam_jobs.storage import files
from schemas.example import encode_example
from schemas.receipt import Feature
from schemas.vocabulary import Vocabulary

# Where a record's frame lies: chunk and digest name its staging file, see `Staging.records`. The
# structured dtype doubles as a wire format: Beam shuffles the bytes of an array of it (`tobytes`),
# `np.frombuffer` reads them back, and the parts of several workers are joined as bytes. So byte
# order (<) and widths are fixed: 4 + 16 + 8 + 4 = 32 bytes a location, and 44 with its order. The
# digest is void (V), as NumPy drops zeros at the end of a string (S).
LOCATION = np.dtype(
    [("chunk", "<u4"), ("digest", "V16"), ("offset", "<u8"), ("length", "<u4")],
)
# A location with the id of the record's layout, and the number that orders it within its shard: the
# second word of the key, which is as good as random, so that layouts are mixed within a shard.
ORDERED_LOCATION = np.dtype([("order", "<u8"), ("location", LOCATION), ("layout", "<i4")])


@dataclass(frozen=True, kw_only=True, eq=False)
class References:
    """Records of one or more chunks; arrays of shape [n].

    Attributes:
      key: uint64 [n, 2], hash of the id: the first word orders records within a layout, the
        second within a shard.
      group: uint64, hash of the group; 0 for none.
      location: LOCATION, where the record was staged.
      categories: name to (vocabulary, int32 positions in it).
    """

    key: npt.NDArray[np.uint64]
    group: npt.NDArray[np.uint64]
    location: npt.NDArray[Any]
    categories: Mapping[str, tuple[tuple[str, ...], npt.NDArray[np.int32]]]

    def __len__(self) -> int:
        return len(self.key)

    def take(self, rows: npt.NDArray[Any]) -> Self:
        """Returns the given rows (positions or a mask), in that order."""
        return type(self)(
            key=self.key[rows],
            group=self.group[rows],
            location=self.location[rows],
            categories={
                name: (values, codes[rows]) for name, (values, codes) in self.categories.items()
            },
        )

    def codes(self, name: str, vocabulary: Vocabulary) -> npt.NDArray[np.int32]:
        """Positions of the records' values in another vocabulary; int32 [n].

        Values a, c with the codes 0 1 1 are, in the vocabulary a, b, c, the codes 0 2 2.

        Raises:
          KeyError: the vocabulary lacks a value that a record has.
        """
        values, codes = self.categories[name]
        # This vocabulary may hold values of records that were left out since: look up used ones.
        used, row = np.unique(codes, return_inverse=True)
        return _positions([values[code] for code in used.tolist()], vocabulary)[row]

    def recoded(self, vocabularies: Mapping[str, Vocabulary]) -> Self:
        """Returns the same records with their categories in other vocabularies, see `codes`."""
        return replace(
            self,
            categories={
                name: (vocabularies[name].values, self.codes(name, vocabularies[name]))
                for name in self.categories
            },
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Joins the rows of all parts, sorted by key."""
        vocabularies = {
            name: Vocabulary.sorted(value for part in parts for value in part.categories[name][0])
            for name in parts[0].categories
        }
        recoded = [part.recoded(vocabularies) for part in parts]
        merged = cls(
            key=np.concatenate([part.key for part in parts]),
            group=np.concatenate([part.group for part in parts]),
            location=np.concatenate([part.location for part in parts]),
            categories={
                name: (
                    vocabulary.values,
                    np.concatenate([part.categories[name][1] for part in recoded]),
                )
                for name, vocabulary in vocabularies.items()
            },
        )
        # By the first word, and by the second where the first are equal: `lexsort` sorts by its
        # last key first.
        return merged.take(np.lexsort((merged.key[:, 1], merged.key[:, 0])))

    def to_bytes(self) -> bytes:
        """Contents of a staging file: the columns as an .npz."""
        vocabularies = {name: values for name, (values, _) in self.categories.items()}
        buffer = io.BytesIO()
        np.savez(
            buffer,
            key=self.key,
            group=self.group,
            location=self.location,
            vocabularies=np.frombuffer(json.dumps(vocabularies).encode(), np.uint8),
            **{f"category/{name}": codes for name, (_, codes) in self.categories.items()},
        )
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of `to_bytes`."""
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            vocabularies = json.loads(arrays["vocabularies"].tobytes())
            return cls(
                key=arrays["key"],
                group=arrays["group"],
                location=arrays["location"],
                categories={
                    name: (tuple(values), arrays[f"category/{name}"])
                    for name, values in vocabularies.items()
                },
            )

    def ordered_locations(self, layout: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        """ORDERED_LOCATION of each record, all that the writer of a shard needs.

        `layout` are the ids of the records' layouts, int32 [n].
        """
        ordered = np.empty(len(self), ORDERED_LOCATION)
        ordered["order"] = self.key[:, 1]
        ordered["location"] = self.location
        ordered["layout"] = layout
        return ordered


def make_references(
    rows: Sequence[Row],
    *,
    keys: Sequence[tuple[int, int]],
    locations: Sequence[tuple[int, bytes, int, int]],
    categories: Sequence[str],
) -> References:
    """Returns references to the records of rows; a location is (chunk, digest, offset, length)."""
    return References(
        key=np.array(keys, np.uint64).reshape(-1, 2),
        group=np.array([hash_words(r.group)[0] if r.group else 0 for r in rows], np.uint64),
        location=np.array(locations, LOCATION),
        categories={
            name: encode_values([row.categories[name] for row in rows]) for name in categories
        },
    )


def stage_references(references: References, staging: Staging) -> str:
    """Writes references to a staging file named by its contents, and returns its path."""
    data = references.to_bytes()
    path = staging.references(hashlib.sha256(data).hexdigest())
    files.write(path, data)
    return path


def encode_values(values: Sequence[str]) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """A category column of these values: its vocabulary, sorted, and int32 positions in it."""
    vocabulary = Vocabulary.sorted(values)
    return vocabulary.values, _positions(values, vocabulary)


def _positions(values: Sequence[str], vocabulary: Vocabulary) -> npt.NDArray[np.int32]:
    return np.array([vocabulary.position(value) for value in values], np.int32)


def hash_words(text: str | bytes, *, seed: int = 0) -> tuple[int, int]:
    """Hashes a text to 128 evenly spread bits, as two unsigned words of 64."""
    # Python's own `hash` differs from process to process. The salt gives each seed an order, and a
    # choice of splits, of its own.
    data = text.encode() if isinstance(text, str) else text
    digest = blake2b(data, digest_size=16, salt=seed.to_bytes(8, "little")).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def labels_hash(features: Sequence[Feature], values: Mapping[str, Any]) -> int:
    """Hashes what a record says of its receipt; `features` are `schemas.receipt.labels_features`.

    Of the values as they are stored, so that a record that was read again has the same hash: 12.3
    as a float32 is another number than as Python's float.
    """
    labels = {feature.name: values[feature.name] for feature in features}
    return hash_words(encode_example(features, labels))[0]
