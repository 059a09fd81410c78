"""The record index: one row per record of a shard, as NumPy arrays.

An index file is an uncompressed `.npz` archive beside its shard. It loads without parsing, takes
some 40 bytes per record plus the ids, and its bytes are a function of its contents.
"""

import io
import struct
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

_CATEGORY = "category/"
# NumPy parses an array's header with `ast`, which fails at random in several threads at once
# (python/cpython#106905, fixed in 3.11.8).
_PARSING = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class IndexRow:
    """One row of the record index; `categories` are a field, so that they may have any name.

    Attributes:
      id: the receipt's id.
      offset, length: byte at which the record's frame starts in its shard, and its bytes.
      height, width, channels: the shape of the stored image.
      categories: name to position in the manifest's vocabulary.
    """

    id: str
    offset: int
    length: int
    height: int
    width: int
    channels: int
    categories: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordIndex:
    """Place, shape and categories of each record of a shard or split; arrays of shape [n].

    Attributes:
      offset: int64, byte at which the record's frame starts in its shard.
      length: int32, bytes of the frame, checksums included.
      height, width: int32, pixels of the stored image.
      channels: uint8, 1 or 3.
      categories: name to int32 array of positions in the manifest's vocabulary.
      id_end: int64, end of each id in `id_text`; an id starts at the end of the one before. The
        ids ab and c have the ends 2 and 3.
      id_text: uint8 [total], the ids in UTF-8, one after the other.
    """

    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int32]
    height: npt.NDArray[np.int32]
    width: npt.NDArray[np.int32]
    channels: npt.NDArray[np.uint8]
    categories: Mapping[str, npt.NDArray[np.int32]]
    id_end: npt.NDArray[np.int64]
    id_text: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.offset)

    def id(self, position: int) -> str:
        """Returns the id of one record."""
        start = self.id_end[position - 1] if position else 0
        return self.id_text[start : self.id_end[position]].tobytes().decode()

    def ids(self) -> list[str]:
        """Returns the ids of all records."""
        text = self.id_text.tobytes()
        ends = self.id_end.tolist()
        return [text[a:b].decode() for a, b in zip([0, *ends], ends, strict=False)]

    @classmethod
    def of_rows(cls, rows: Sequence[IndexRow], *, categories: Sequence[str]) -> Self:
        """Makes the index of one shard from its rows, which have these categories."""
        # Not an array of strings: NumPy pads each to the longest, with four bytes per character.
        encoded = [row.id.encode() for row in rows]

        def column(name: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
            return np.array([getattr(row, name) for row in rows], dtype)

        return cls(
            offset=column("offset", np.int64),
            length=column("length", np.int32),
            height=column("height", np.int32),
            width=column("width", np.int32),
            channels=column("channels", np.uint8),
            categories={
                name: np.array([row.categories[name] for row in rows], np.int32)
                for name in categories
            },
            id_end=np.cumsum([len(id_) for id_ in encoded], dtype=np.int64),
            id_text=np.frombuffer(b"".join(encoded), np.uint8),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Joins the indexes of a split's shards, in their order.

        Raises:
          ValueError: there is no part, or the parts differ in their categories.
        """
        if not parts:
            raise ValueError("an index needs at least one shard, got none")
        names = parts[0].categories.keys()
        if any(part.categories.keys() != names for part in parts):
            raise ValueError(f"shard indexes differ in their categories, {sorted(names)} expected")
        # Ends count from the start of their shard's text. Of shards whose texts have 3, 5 and 4
        # bytes, the text starts at 0, 3 and 8 of the split's.
        text_starts = np.cumsum([0, *(len(part.id_text) for part in parts[:-1])])
        return cls(
            **{
                name: np.concatenate([getattr(part, name) for part in parts])
                for name in (*_COLUMNS, "id_text")
            },
            categories={
                name: np.concatenate([part.categories[name] for part in parts]) for name in names
            },
            id_end=np.concatenate(
                [part.id_end + start for part, start in zip(parts, text_starts, strict=True)]
            ),
        )

    def to_bytes(self) -> bytes:
        """The index file's contents."""
        buffer = io.BytesIO()
        columns = {name: getattr(self, name) for name in (*_COLUMNS, "id_end", "id_text")}
        named = {_CATEGORY + name: array for name, array in self.categories.items()}
        # NumPy dates every member of the archive 1980-01-01 and compresses nothing: equal indexes
        # make equal bytes, and `array_start` can tell where a column lies.
        np.savez(buffer, **columns, **named)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of `to_bytes`.

        Raises:
          ValueError: the bytes are not an index file.
        """
        with _one_error(), _PARSING, np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            loaded = dict(arrays)
            return cls(
                **{name: loaded[name] for name in (*_COLUMNS, "id_end", "id_text")},
                categories={
                    name.removeprefix(_CATEGORY): array
                    for name, array in loaded.items()
                    if name.startswith(_CATEGORY)
                },
            )


_COLUMNS = ("offset", "length", "height", "width", "channels")


def dali_index(index: RecordIndex) -> bytes:
    """Makes the file by which `nvidia.dali.fn.readers.tfrecord` finds the records of one shard.

    One line per record: the byte at which its frame starts, and the bytes of the frame, as DALI's
    `tfrecord2idx` writes them. Of two records of 90 and 70 bytes: "0 90" and "90 70".
    """
    pairs = zip(index.offset.tolist(), index.length.tolist(), strict=True)
    return "".join(f"{offset} {length}\n" for offset, length in pairs).encode()


def read_columns(file: BinaryIO, names: Sequence[str]) -> list[npt.NDArray[Any]]:
    """Reads some columns of an index file, named as in its archive, and no others.

    Raises:
      ValueError: the file is not an index file, or has no such column.
    """
    with _one_error(), _PARSING, np.load(file, allow_pickle=False) as arrays:
        # An .npz reads an array when it is asked for.
        return [arrays[name] for name in names]


def array_start(file: BinaryIO, name: str) -> int:
    """Finds the byte of an index file at which the values of a column start.

    Raises:
      ValueError: the file is not an index file, or has no such column.
    """
    with _one_error():
        with zipfile.ZipFile(file) as archive:
            header = archive.getinfo(f"{name}.npy").header_offset
        # A ZIP member has a header of 30 bytes, of which the last four are the lengths of the name
        # and of the extra field that follow. Then the NPY file begins: 8 bytes of magic and
        # version, 2 with the length of its header, the header, and the values. A member `width.npy`
        # at byte 0 has a name of 9 bytes and NumPy an extra field of 20, so its NPY file begins at
        # 30 + 9 + 20 = 59; with a header of 118 bytes, its values begin at 59 + 10 + 118 = 187.
        file.seek(header + 26)
        array = header + 30 + sum(struct.unpack("<HH", file.read(4)))
        file.seek(array + 8)
        [array_header] = struct.unpack("<H", file.read(2))
        return int(array + 10 + array_header)


@contextmanager
def _one_error() -> Iterator[None]:
    """Raises a ValueError for any error of zipfile, struct and NumPy over a damaged file."""
    try:
        yield
    except OSError:  # of the disk, not of the file
        raise
    except Exception as error:
        raise ValueError(f"not a record index: {error}") from error
