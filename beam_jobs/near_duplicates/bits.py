"""Counts of bits, as `numpy.bitwise_count` of NumPy 2 counts them."""

from functools import cache

import numpy as np
import numpy.typing as npt


def count_bits(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """Counts the bits that are set in each row of uint64 [n, words]: int32 [n]."""
    octets = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), 8 * words.shape[1])
    return _bit_counts()[octets].sum(axis=1, dtype=np.int32)


@cache
def _bit_counts() -> npt.NDArray[np.uint8]:
    return np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(1, dtype=np.uint8)
