"""Which chunk an id belongs to: chunks are equal ranges of the id's hash."""

_LEAST_CHUNKS = 1024
_FEWEST_ROWS, _MOST_ROWS = 16, 256
_BLOCK_ROWS = 1 << 16


def chunk_count(rows: int) -> int:
    """Number of chunks, a power of two: about 16 rows each in a small build, 256 in a large one.

    It follows from the number of rows alone, so an interrupted build finds its chunks again on
    any number of workers.
    """
    rows_each = min(max(rows // _LEAST_CHUNKS, _FEWEST_ROWS), _MOST_ROWS)
    return 1 << max(0, rows // rows_each - 1).bit_length()


def chunk_of(word: int, chunks: int) -> int:
    """Chunk of an id with this 64-bit hash word; chunks are in the order of the words."""
    return word * chunks >> 64


def chunks_per_block(rows: int) -> int:
    """Neighbouring chunks that are dealt together, as columns of some 65,536 rows."""
    return max(1, chunk_count(rows) * _BLOCK_ROWS // max(rows, 1))
