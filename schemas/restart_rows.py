"""JPEG files with restart rows: a reader can decode some rows without the rows above them.

Entropy decoding begins anew at each restart marker. A file with such a marker after each row of
blocks (MCUs) can be cut: the header with another height, the bytes of some rows and the end marker
are a file, too. A table tells where the rows begin. The table is a segment for applications (APP10)
of the file, which other decoders skip. It lies behind the first segment that Pillow writes:

    FFD8 | FFE0, 18 bytes | FFEA, length, "tillrows", numbers | … | FFDA … | rows | FFD9
    0    | 2              | 20                                |

The numbers are of 32 bits, little-endian: the byte at which the frame says its height; pixels of a
row of blocks; the number of rows; the byte at which the data of each row begin; and the size of the
file. Markers are numbered 0 to 7, over and over, and decoders expect 0 first, so a reader must cut
at a multiple of 8 rows.

Format: ITU-T T.81, B.1.1.3 and B.2.
"""

import struct
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from schemas.jpeg import SOS, segments
from schemas.manifest import Manifest

TABLE_START = 20  # byte of a file at which the segment of the table begins
NUMBERS_START = TABLE_START + 12
NUMBERS_BEFORE_ROWS = 3
MARKERS = 8  # after which their numbers begin anew
END_MARKER = b"\xff\xd9"
_NAME = b"tillrows"
_APP10 = b"\xff\xea"
_JFIF = b"\xff\xe0\x00\x10"  # a segment that ends at `TABLE_START`
_FRAMES = (0xC0, 0xC1)  # baseline and extended; progressive files have no rows of their own
_BLOCK = 8  # pixels


def all_restart_rows(manifest: Manifest) -> bool:
    """Tells whether the JPEG files of all records of a dataset have restart rows."""
    images = [generation.build_options.get("image") for generation in manifest.generations]
    # Build options may be anything in a manifest that somebody has changed.
    return all(isinstance(image, Mapping) and image.get("restart_rows") is True for image in images)


def with_row_table(data: bytes) -> bytes:
    """Adds the table of rows to a JPEG file.

    Args:
      data: a file that Pillow has written, with a restart marker after each row of blocks.

    Raises:
      ValueError: the file begins otherwise, or lacks the markers.
    """
    if data[2:6] != _JFIF:
        raise ValueError(f"JPEG file that begins with {data[:6].hex().upper()}, not as JFIF does")
    height_at = row_height = rows = begin = 0
    for segment in segments(data):
        if segment.marker in _FRAMES:
            height, components = int.from_bytes(segment.header[1:3]), segment.header[5]
            # Each component has three bytes, of which the second holds its vertical sampling. A
            # single component comes in blocks, whatever it says.
            sampling = [byte & 15 for byte in segment.header[7::3]] if components > 1 else [1]
            height_at, row_height = segment.offset + 5, _BLOCK * max(sampling)
            rows = -(-height // row_height)
        elif segment.marker == SOS:
            begin = segment.offset + 4 + len(segment.header)
    stored = np.frombuffer(data, np.uint8)
    is_marker = (stored[begin:-1] == 0xFF) & (stored[begin + 1 :] & 0xF8 == 0xD0)
    starts = [begin, *(np.flatnonzero(is_marker) + begin + 2).tolist(), len(data)]
    if len(starts) != rows + 1 or any(start >= end for start, end in pairwise(starts)):
        raise ValueError(f"JPEG file of {rows} rows of blocks has {len(starts) - 2} markers")
    count = NUMBERS_BEFORE_ROWS + len(starts)
    size = 2 + len(_NAME) + 4 * count
    moved = [number + 2 + size for number in starts]
    numbers = struct.pack(f"<{count}I", height_at + 2 + size, row_height, rows, *moved)
    table = _APP10 + size.to_bytes(2) + _NAME + numbers
    return data[:TABLE_START] + table + data[TABLE_START:]


def has_row_table(data: bytes) -> bool:
    """Tells whether a JPEG file has a table of rows that is right."""
    try:
        check_row_table(data)
    except ValueError:
        return False
    return True


def check_row_table(data: bytes) -> None:
    """Checks that a JPEG file has a table of rows, and that the table is right.

    Raises:
      ValueError: the file has no table, or a wrong one.
    """
    if data[TABLE_START + 4 : NUMBERS_START] != _NAME:
        raise ValueError("JPEG file without the table of its rows")
    end = TABLE_START + 2 + int.from_bytes(data[TABLE_START + 2 : TABLE_START + 4])
    if with_row_table(data[:TABLE_START] + data[end:]) != data:
        raise ValueError("JPEG file whose table of rows is wrong")
