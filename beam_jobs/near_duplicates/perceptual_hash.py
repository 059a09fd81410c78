"""Perceptual hashes of images: nearly equal for an image that was encoded again or scaled.

The method is pHash (Zauner 2010), with 1,024 bits instead of 64: receipts are white sheets with
lines of text, and 64 bits tell them from landscapes, but not from each other. An image that was
cropped or turned, and another photo of the same receipt, have other hashes.
"""

from functools import cache

import numpy as np
import numpy.typing as npt
from PIL import Image

from beam_jobs.images.jpeg_decoder import draft_gray
from beam_jobs.near_duplicates.bits import count_bits
from schemas.fingerprints import HASH_WORDS, HashArray

HASH_VERSION = 1
_SIDE = 128  # pixels of the image that is looked at
_WAVES = 32  # along each side: the cosines that are looked for
_MIN_CONTRAST = 32  # of 255: an image that shows less shows nothing
_BANDS = 8
_BAND_BITS = 24


def perceptual_hash(image: Image.Image) -> HashArray:
    """Hashes an image as it is stored, of mode L or RGB.

    Returns:
      uint64 [16], 1,024 bits, coarse features first; zeros for an image that shows nothing.
    """
    width, height = image.size
    draft_gray(image, (_SIDE, _SIDE))  # a JPEG file at a half or a quarter of its size is enough
    # Its size was rounded up then. Half of 333 pixels are 166.5: scaled as 167, fine features would
    # shift, and differ from those of an image that is not halved.
    scale = 2 ** round(np.log2(max(width, height) / max(image.size)))
    small = image.convert("L").resize(
        (_SIDE, _SIDE), Image.Resampling.LANCZOS, box=(0, 0, width / scale, height / scale)
    )
    pixels = np.asarray(small).astype(np.int64)
    if np.ptp(pixels) < _MIN_CONTRAST:
        return np.zeros(HASH_WORDS, np.uint64)
    # Whole numbers, so the sums are exact and the same on each processor.
    waves = (_cosines() @ pixels @ _cosines().T).ravel()[_coarse_first()]
    bits = waves > np.median(waves[1:])
    return np.packbits(bits).view(">u8").astype(np.uint64)


def hash_bands(hashes: HashArray) -> HashArray:
    """Cuts the first 192 bits of hashes, uint64 [n, 16], into bands of 24: uint64 [n, 8].

    The first bit, which is the mean of an image, is left out. Each band has its number in front, so
    that equal values are of the same band.
    """
    octets = hashes.astype(">u8").view(np.uint8).reshape(len(hashes), 8 * HASH_WORDS)
    bits = np.unpackbits(octets, axis=1)[:, 1 : 1 + _BANDS * _BAND_BITS]
    weights = np.uint64(1) << np.arange(_BAND_BITS, dtype=np.uint64)
    values = (bits.reshape(-1, _BANDS, _BAND_BITS) * weights).sum(axis=2, dtype=np.uint64)
    numbers = (np.arange(1, _BANDS + 1, dtype=np.uint64)) << np.uint64(_BAND_BITS)
    return values | numbers


def differing_bits(first: HashArray, second: HashArray) -> npt.NDArray[np.int32]:
    """Counts the bits in which hashes differ, row by row: int32 [n]."""
    return count_bits(first ^ second)


@cache
def _cosines() -> npt.NDArray[np.int64]:
    """Cosines of a discrete cosine transform, times 1024; int64 [32, 128]."""
    middles = np.arange(_SIDE) + 0.5
    waves = np.cos(np.pi / _SIDE * np.arange(_WAVES)[:, None] * middles)
    return np.rint(1024 * waves).astype(np.int64)


@cache
def _coarse_first() -> npt.NDArray[np.int64]:
    """Order of the waves by the finer of their two directions, int64 [1024]."""
    down, across = np.indices((_WAVES, _WAVES)).reshape(2, -1)
    return np.lexsort((down, down + across, np.maximum(down, across)))
