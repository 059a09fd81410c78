"""The record index: columns in, the same columns out, and nothing else accepted."""

import gc
import io
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.index import IndexRow, RecordIndex, array_start, dali_index, read_columns

CATEGORIES = ("layout", "offset")  # a category may have the name of a column
COLUMNS = ("offset", "length", "height", "width", "channels", "id_end", "id_text")
DTYPES = {
    "offset": np.int64,
    "length": np.int32,
    "height": np.int32,
    "width": np.int32,
    "channels": np.uint8,
    "id_end": np.int64,
    "id_text": np.uint8,
}
ROWS = [
    {
        "id": id_,
        "offset": 5_000_000_000 * number,
        "length": 300 + number,
        "height": 640,
        "width": 480 + number,
        "channels": channels,
        "categories": {"layout": 7 * number, "offset": number % 2},
    }
    for number, (id_, channels) in enumerate([("a.jpg", 1), ("Käse/€ 😀.png", 3), ("", 3)])
]

ROW = st.fixed_dictionaries(
    {
        "id": st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
        "offset": st.integers(0, 2**62),
        "length": st.integers(16, 2**31 - 1),
        "height": st.integers(1, 65_535),
        "width": st.integers(1, 65_535),
        "channels": st.sampled_from([1, 3]),
        "categories": st.fixed_dictionaries(
            {"layout": st.integers(0, 2**31 - 1), "offset": st.integers(0, 200)}
        ),
    }
)


def index_of(rows: Sequence[dict[str, Any]]) -> RecordIndex:
    return RecordIndex.of_rows([IndexRow(**row) for row in rows], categories=CATEGORIES)


def as_lists(index: RecordIndex) -> dict[str, Any]:
    columns = {name: getattr(index, name).tolist() for name in COLUMNS}
    return columns | {
        f"category/{name}": codes.tolist() for name, codes in index.categories.items()
    }


def test_columns_and_their_types() -> None:
    index = index_of(ROWS)
    assert len(index) == 3
    assert index.ids() == ["a.jpg", "Käse/€ 😀.png", ""]
    assert [index.id(position) for position in range(3)] == index.ids()
    assert index.offset.tolist() == [0, 5_000_000_000, 10_000_000_000]
    assert index.width.tolist() == [480, 481, 482]
    assert index.categories["layout"].tolist() == [0, 7, 14]
    assert {name: getattr(index, name).dtype for name in COLUMNS} == DTYPES
    assert {codes.dtype for codes in index.categories.values()} == {np.dtype(np.int32)}


@given(st.lists(ROW, max_size=8))
@settings(deadline=None, max_examples=50)
def test_bytes_round_trip(rows: list[dict[str, Any]]) -> None:
    index = index_of(rows)
    again = RecordIndex.from_bytes(index.to_bytes())
    assert as_lists(again) == as_lists(index)
    assert again.ids() == [row["id"] for row in rows]
    assert {name: getattr(again, name).dtype for name in COLUMNS} == DTYPES


@given(st.lists(st.lists(ROW, max_size=4), min_size=1, max_size=4))
@settings(deadline=None, max_examples=50)
def test_concatenation_puts_shards_one_after_the_other(shards: list[list[dict[str, Any]]]) -> None:
    whole = RecordIndex.concatenate([index_of(rows) for rows in shards])
    rows = [row for each in shards for row in each]
    assert whole.ids() == [row["id"] for row in rows]
    assert [whole.id(position) for position in range(len(whole))] == whole.ids()
    for name in ("offset", "length", "height", "width", "channels"):
        assert getattr(whole, name).tolist() == [row[name] for row in rows]
    for name in CATEGORIES:
        assert whole.categories[name].tolist() == [row["categories"][name] for row in rows]


def test_an_index_without_records() -> None:
    index = RecordIndex.from_bytes(index_of([]).to_bytes())
    assert len(index) == 0
    assert index.ids() == []
    assert index.categories.keys() == set(CATEGORIES)
    assert {name: getattr(index, name).dtype for name in COLUMNS} == DTYPES


def test_the_index_for_dali_has_the_place_of_each_frame() -> None:
    rows = [
        ROWS[0] | {"offset": 0, "length": 90},
        ROWS[1] | {"offset": 90, "length": 70},
    ]
    assert dali_index(index_of(rows)) == b"0 90\n90 70\n"
    assert dali_index(index_of([])) == b""


def test_concatenation_needs_a_shard() -> None:
    with pytest.raises(ValueError, match=r"^an index needs at least one shard, got none$"):
        RecordIndex.concatenate([])


def test_concatenation_needs_equal_categories() -> None:
    rows = [IndexRow(**row) for row in ROWS]
    other = RecordIndex.of_rows(rows, categories=("layout",))
    sentence = "shard indexes differ in their categories, ['layout', 'offset'] expected"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        RecordIndex.concatenate([index_of(ROWS), other])


def test_bytes_hold_no_time_and_no_compression() -> None:
    with zipfile.ZipFile(io.BytesIO(index_of(ROWS).to_bytes())) as archive:
        members = archive.infolist()
    assert {member.filename.removesuffix(".npy") for member in members} == {
        *COLUMNS,
        "category/layout",
        "category/offset",
    }
    assert {member.date_time for member in members} == {(1980, 1, 1, 0, 0, 0)}
    assert {member.compress_type for member in members} == {zipfile.ZIP_STORED}


def _npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    return buffer.getvalue()


def _other_archive() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, offset=np.arange(3))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"garbage" * 50, id="garbage"),
        pytest.param(b"PK\x03\x04" + b"\x00" * 200, id="head_of_an_archive"),
        pytest.param(_npy(), id="one_array"),
        pytest.param(_other_archive(), id="archive_without_the_columns"),
        pytest.param(index_of(ROWS).to_bytes()[:-10], id="cut_off"),
    ],
)
def test_refuses_what_is_no_index(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^not a record index: ."):
        RecordIndex.from_bytes(data)


def test_refuses_damaged_columns() -> None:
    data = bytearray(index_of(ROWS).to_bytes())
    place = bytes(data).index("Käse".encode())
    data[place] ^= 1
    with pytest.raises(ValueError, match=r"^not a record index: .*CRC"):
        RecordIndex.from_bytes(bytes(data))


@given(st.lists(ROW, max_size=6))
@settings(deadline=None, max_examples=50)
def test_reads_some_columns(rows: list[dict[str, Any]]):
    data = index_of(rows).to_bytes()
    names = ["category/offset", "offset", "id_end", "length"]
    codes, offset, id_end, length = read_columns(io.BytesIO(data), names)
    assert codes.tolist() == [row["categories"]["offset"] for row in rows]
    assert offset.tolist() == [row["offset"] for row in rows]
    assert length.tolist() == [row["length"] for row in rows]
    assert id_end.tolist() == RecordIndex.from_bytes(data).id_end.tolist()
    assert (offset.dtype, length.dtype, codes.dtype) == (np.int64, np.int32, np.int32)


def test_columns_that_are_not_wanted_are_not_looked_at():
    data = bytearray(index_of(ROWS).to_bytes())
    data[bytes(data).index("Käse".encode())] ^= 1
    assert read_columns(io.BytesIO(data), ["offset"])[0].tolist() == [row["offset"] for row in ROWS]
    with pytest.raises(ValueError, match=r"^not a record index: Bad CRC-32"):
        read_columns(io.BytesIO(data), ["id_text"])


def test_a_column_that_is_not_there():
    with pytest.raises(ValueError, match=r"^not a record index: 'category/shop is not a file"):
        read_columns(io.BytesIO(index_of(ROWS).to_bytes()), ["category/shop"])


@given(st.lists(ROW, max_size=6))
@settings(deadline=None, max_examples=50)
def test_a_column_starts_where_its_values_lie(rows: list[dict[str, Any]]):
    """So that a graph can read it with no NumPy."""
    index = index_of(rows)
    data = index.to_bytes()
    for name, dtype in DTYPES.items():
        values = np.frombuffer(
            data, dtype, len(getattr(index, name)), array_start(io.BytesIO(data), name)
        )
        assert values.tolist() == getattr(index, name).tolist()
    layout = np.frombuffer(
        data, np.int32, len(rows), array_start(io.BytesIO(data), "category/layout")
    )
    assert layout.tolist() == index.categories["layout"].tolist()


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns as often as they can, also in the middle of what is written in C."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(1)
    gc.callbacks.append(lambda phase, info: sum(range(50)))
    yield
    gc.callbacks.pop()
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("eager_threads")
def test_threads_read_at_the_same_time():
    data = index_of(ROWS).to_bytes()

    def read(number: int) -> list[int]:
        if number % 2:
            return RecordIndex.from_bytes(data).offset.tolist()
        return read_columns(io.BytesIO(data), ["offset", "length"])[0].tolist()

    with ThreadPoolExecutor(16) as pool:
        read_all = list(pool.map(read, range(100)))
    assert read_all == [[row["offset"] for row in ROWS]] * 100
