"""Which chunk an id belongs to: chunks are equal ranges of the id's hash."""

_LEAST_CHUNKS = 64
_ROWS = 128
_LEAST_GROUPS = 1024
_MOST_CHUNKS_A_GROUP = 64


def chunk_count(rows: int) -> int:
    """Number of chunks, a power of two: of 128 to 255 rows each, or 64 and more smaller ones.

    It follows from the number of rows alone, so an interrupted build finds its chunks again on
    any number of workers.
    """
    rows_each = min(max(rows // _LEAST_CHUNKS, 1), _ROWS)
    return 1 << (rows // rows_each).bit_length() - 1


def group_count(rows: int) -> int:
    """Number of groups of neighbouring chunks, a power of two: what is shuffled as one element.

    Enough of them to keep a thousand workers busy, and no more than some ten thousand rows in each.
    """
    chunks = chunk_count(rows)
    return min(chunks, max(_LEAST_GROUPS, chunks // _MOST_CHUNKS_A_GROUP))
