"""Light references to prepared records: columns of some 50 bytes a record, never image bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Self

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class References:
    """Records of one or more chunks; arrays of shape [n].

    Attributes:
      key: uint64 [n, 2], hash of the id: the first word orders records within a layout, the
        second within a shard.
      group: uint64, hash of the group; 0 for none.
      file: int32, position in `files` of the staging file that holds the record.
      offset, length: int64, the record's frame in that file, in bytes.
      categories: name to (vocabulary, int32 positions in it).
      files: paths of staging files.
    """

    key: npt.NDArray[np.uint64]
    group: npt.NDArray[np.uint64]
    file: npt.NDArray[np.int32]
    offset: IntArray
    length: IntArray
    categories: Mapping[str, tuple[tuple[str, ...], npt.NDArray[np.int32]]]
    files: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.key)

    def take(self, rows: npt.NDArray[Any]) -> Self:
        """The given rows (positions or a mask), in that order."""
        used, file = np.unique(self.file[rows], return_inverse=True)
        return type(self)(
            **{name: getattr(self, name)[rows] for name in _ARRAYS},
            file=file.astype(np.int32),
            categories={
                name: (values, codes[rows]) for name, (values, codes) in self.categories.items()
            },
            files=tuple(self.files[number] for number in used.tolist()),
        )

    def recoded(self, vocabularies: Mapping[str, Sequence[str]]) -> Self:
        """The same records with their categories in other vocabularies, which hold all values."""
        return replace(
            self,
            categories={
                name: (tuple(vocabularies[name]), _recode(values, vocabularies[name])[codes])
                for name, (values, codes) in self.categories.items()
            },
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """All rows of all parts, sorted by key."""
        file_starts = np.cumsum([0, *(len(part.files) for part in parts[:-1])])
        vocabularies = {
            name: sorted({value for part in parts for value in part.categories[name][0]})
            for name in parts[0].categories
        }
        recoded = [part.recoded(vocabularies) for part in parts]
        merged = cls(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS},
            file=np.concatenate(
                [part.file + start for part, start in zip(parts, file_starts, strict=True)]
            ).astype(np.int32),
            categories={
                name: (
                    tuple(values),
                    np.concatenate([part.categories[name][1] for part in recoded]),
                )
                for name, values in vocabularies.items()
            },
            files=tuple(path for part in parts for path in part.files),
        )
        return merged.take(np.lexsort((merged.key[:, 1], merged.key[:, 0])))


def encode_values(values: Sequence[str]) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """A category column of these values: its vocabulary, sorted, and int32 positions in it."""
    vocabulary = tuple(sorted(set(values)))
    position = {value: number for number, value in enumerate(vocabulary)}
    return vocabulary, np.array([position[value] for value in values], np.int32)


def _recode(values: Sequence[str], vocabulary: Sequence[str]) -> npt.NDArray[np.int32]:
    position = {value: number for number, value in enumerate(vocabulary)}
    return np.array([position[value] for value in values], np.int32)


_ARRAYS = ("key", "group", "offset", "length")


def hash_words(text: str | bytes, *, seed: int = 0) -> tuple[int, int]:
    """128 evenly spread bits of a text, as two unsigned words."""
    data = text.encode() if isinstance(text, str) else text
    digest = blake2b(data, digest_size=16, salt=seed.to_bytes(8, "little")).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
