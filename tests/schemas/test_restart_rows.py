"""The table of the rows of a JPEG file."""

import io

import numpy as np
import pytest
from PIL import Image

from schemas.jpeg import check_jpeg
from schemas.restart_rows import (
    NUMBERS_BEFORE_ROWS,
    NUMBERS_START,
    check_row_table,
    has_row_table,
    with_row_table,
)
from tests.support.pictures import encode, picture

PAGE = Image.fromarray(picture(371, 203))


def plain(**options: object) -> bytes:
    return encode(PAGE, "JPEG", restart_marker_rows=1, **options)


@pytest.mark.parametrize(
    ("file", "row_height"),
    [
        (plain(), 16),
        (plain(subsampling=0), 8),
        (plain(subsampling=1), 8),
        (plain(optimize=True), 16),
        (encode(PAGE.convert("L"), "JPEG", restart_marker_rows=1), 8),
        (encode(PAGE.crop((0, 0, 203, 9)), "JPEG", restart_marker_rows=1), 16),
    ],
)
def test_rows_begin_behind_their_markers(file: bytes, row_height: int):
    data = with_row_table(file)
    assert has_row_table(data)
    assert not has_row_table(file)
    check_jpeg(data)
    check_row_table(data)
    with Image.open(io.BytesIO(data)) as image, Image.open(io.BytesIO(file)) as expected:
        assert image.tobytes() == expected.tobytes()
        height = image.height
    numbers = np.frombuffer(data, "<u4", count=NUMBERS_BEFORE_ROWS, offset=NUMBERS_START)
    height_at, found_height, rows = numbers.tolist()
    assert int.from_bytes(data[height_at : height_at + 2]) == height
    assert found_height == row_height
    assert rows == -(-height // row_height)
    offset = NUMBERS_START + 4 * NUMBERS_BEFORE_ROWS
    starts = np.frombuffer(data, "<u4", count=rows + 1, offset=offset).tolist()
    assert starts[-1] == len(data)
    assert data[-2:] == b"\xff\xd9"
    markers = [data[start - 2 : start] for start in starts[1:-1]]
    assert markers == [bytes([0xFF, 0xD0 + number % 8]) for number in range(rows - 1)]


@pytest.mark.parametrize(
    "file", [encode(PAGE, "JPEG"), encode(PAGE, "JPEG", progressive=True), b"\xff\xd8\xff\xd9"]
)
def test_other_files_are_refused(file: bytes):
    with pytest.raises(ValueError, match="JPEG file"):
        with_row_table(file)
    with pytest.raises(ValueError, match="without the table of its rows"):
        check_row_table(file)


def test_a_wrong_table_is_found():
    data = bytearray(with_row_table(plain()))
    data[NUMBERS_START + 4 * NUMBERS_BEFORE_ROWS + 8] ^= 1
    with pytest.raises(ValueError, match="table of rows is wrong"):
        check_row_table(bytes(data))
