"""Chunks and buckets: equal ranges of the hash of an id.

A chunk is what is prepared into one staging file. A bucket is a range of neighboring chunks, which
a runner hands to a worker as one element. Both are powers of two in number, so the first bits of
the hash are the number of the chunk or the bucket.
"""

import numpy as np
import numpy.typing as npt

_MIN_CHUNKS = 64
_CHUNK_ROWS = 128
_MIN_BUCKETS = 1024
_MAX_CHUNKS_PER_BUCKET = 64
_HASH_BITS = 64


def chunk_count(rows: int) -> int:
    """Number of chunks, a power of two: of 128 to 255 rows each, or 64 and more smaller ones.

    It follows from the number of rows alone, so an interrupted build finds its chunks again on
    any number of workers. 100,000 rows make 781 chunks of 128 rows, rounded down to 512 chunks of
    195 rows on average; 1,000 rows make 66 chunks of 15 rows, rounded down to 64. No rows, such as
    those of a dataset of which all receipts were forgotten, make one chunk.
    """
    # Large chunks for few files, small ones for enough workers: at least 64 chunks, if there are as
    # many rows.
    rows_per_chunk = min(max(rows // _MIN_CHUNKS, 1), _CHUNK_ROWS)
    return _power_of_two_at_most(max(rows // rows_per_chunk, 1))


def bucket_count(rows: int) -> int:
    """Number of buckets, a power of two: of neighboring chunks, shuffled as one element.

    Enough of them to keep a thousand workers busy, and no more than some ten thousand rows in each.
    """
    chunks = chunk_count(rows)
    return min(chunks, max(_MIN_BUCKETS, chunks // _MAX_CHUNKS_PER_BUCKET))


def range_shift(count: int) -> int:
    """Bits by which a hash of 64 bits is shifted to the number of its range.

    Args:
      count: number of ranges, a power of two. Of 1024 ranges, the first 10 bits are the
        number, so the shift is 54; of a single range it is 64, which leaves 0.
    """
    return _HASH_BITS - (count.bit_length() - 1)


def buckets_of(words: npt.NDArray[np.uint64], rows: int) -> npt.NDArray[np.uint64]:
    """Returns the bucket of each key, from its first word."""
    shift = range_shift(bucket_count(rows))
    # A shift by 64 bits, of a single bucket, is none to NumPy.
    return words >> np.uint64(shift) if shift < 64 else np.zeros(len(words), np.uint64)


def _power_of_two_at_most(number: int) -> int:
    """Largest power of two that is not above a positive number: of 781 it is 512.

    781 has 10 bits, so the largest is 1 followed by 9 zeros.
    """
    zeros = number.bit_length() - 1
    return 1 << zeros
