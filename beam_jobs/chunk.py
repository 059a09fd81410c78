"""Which chunk an id belongs to: chunks are equal ranges of the id's hash."""

_LEAST_CHUNKS = 1024
_FEWEST_ROWS, _MOST_ROWS = 16, 256
_MOST_CHUNKS_A_GROUP = 32


def chunk_count(rows: int) -> int:
    """Number of chunks, a power of two: about 16 rows each in a small build, 256 in a large one.

    It follows from the number of rows alone, so an interrupted build finds its chunks again on
    any number of workers.
    """
    rows_each = min(max(rows // _LEAST_CHUNKS, _FEWEST_ROWS), _MOST_ROWS)
    return 1 << max(0, rows // rows_each - 1).bit_length()


def group_count(rows: int) -> int:
    """Number of groups of neighbouring chunks, a power of two: what is shuffled as one element.

    Enough of them to keep a thousand workers busy, and no more than some thousand rows in each.
    """
    chunks = chunk_count(rows)
    return min(chunks, max(_LEAST_CHUNKS, chunks // _MOST_CHUNKS_A_GROUP))
