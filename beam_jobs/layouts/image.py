"""Descriptors of receipts by their images: receipts of one layout begin with the same words.

No word is read. Each word or logo at the top, see `strips`, is described by its gradients (Dalal
and Triggs 2005), wherever it stands and whatever its size. Two receipts are as
alike as their words are: the sum of a Gaussian kernel over all pairs of one's and the other's. This
sum is a product of two vectors of fixed size, the sums of random Fourier features (Rahimi and Recht
2007; Bo and Sminchisescu 2009, Efficient Match Kernels). The vectors are what is made here.

Features add noise to the cosine of unrelated receipts, with a standard deviation of one by the root
of their number: 0.02.
"""

import hashlib
from collections.abc import Iterable
from functools import cache
from itertools import chain

import numpy as np
import numpy.typing as npt
from PIL import Image

from beam_jobs.images.jpeg_decoder import draft_gray
from beam_jobs.layouts.clusters import max_value
from beam_jobs.layouts.sheet import cut_out_sheet
from beam_jobs.layouts.strips import Pixels, first_strips
from schemas.layout_centroids import Descriptors

IMAGE_VERSION = 1
IMAGE_SIZE = 2048
_MAX_SIDE = 1400  # of the image that is looked at, in pixels
_HEIGHT, _WIDTH = 24, 192  # to which a strip is scaled, in pixels
_CELL = 6  # height and width of a cell, in pixels
_ROWS, _COLUMNS = _HEIGHT // _CELL, _WIDTH // _CELL
_GRADIENTS = 4 * _ROWS * _COLUMNS
_SCALE = 512  # of gradients with the norm 1
_BANDWIDTH = 0.18  # of the kernel: strips with a cosine of 0.98 count half
_STEPS = 1024  # of a full turn

FloatArray = npt.NDArray[np.float32]


def image_descriptors(images: Iterable[Image.Image]) -> Descriptors:
    """Describes receipts by their images, of any mode.

    Returns:
      int8 [n, 2048]; zeros for an image that shows no print.
    """
    strips = [first_strips(cut_out_sheet(_gray(image))) for image in images]
    counts = np.array([len(each) for each in strips], np.int64)
    gradients = np.zeros((counts.sum(), _GRADIENTS), np.float32)
    for row, strip in enumerate(chain.from_iterable(strips)):
        gradients[row] = _gradients(strip)
    # All products are of whole numbers and smaller than 2**24, so the sums are exact.
    projected = (gradients @ _frequencies()).astype(np.float64)
    steps = np.rint(projected * (_STEPS / _FULL_TURN)).astype(np.int64)
    cosines = np.rint(127 * np.cos(np.arange(_STEPS) * (2 * np.pi / _STEPS))).astype(np.int64)
    features = [cosines[(steps - shift) % _STEPS] for shift in (0, _STEPS // 4)]
    sums = np.zeros((len(counts), IMAGE_SIZE), np.int64)
    np.add.at(sums, np.repeat(np.arange(len(counts)), counts), np.concatenate(features, axis=1))
    largest = np.abs(sums).max(axis=1, keepdims=True, initial=1)
    return np.rint(sums * max_value(IMAGE_SIZE) / largest).astype(np.int8)


def _gray(image: Image.Image) -> Image.Image:
    draft_gray(image, (_MAX_SIDE, _MAX_SIDE))
    gray = image.convert("L")
    gray.thumbnail((_MAX_SIDE, _MAX_SIDE), Image.Resampling.BOX)
    return gray


def _gradients(strip: Pixels) -> FloatArray:
    """Describes a strip; whole numbers of 0 to 127, float32 [512].

    Each cell has four: how much darker it becomes to the right, the left, below and above.
    """
    # Scaled to one width, too: by height alone, one row of ink more would shift all letters.
    larger = strip.shape[0] > _HEIGHT and strip.shape[1] > _WIDTH
    scaled = Image.fromarray(strip).resize(
        (_WIDTH, _HEIGHT), Image.Resampling.BOX if larger else Image.Resampling.BILINEAR
    )
    ink = np.pad(np.asarray(scaled), 1).astype(np.int64)
    across = ink[1:-1, 2:] - ink[1:-1, :-2]
    down = ink[2:, 1:-1] - ink[:-2, 1:-1]
    directions = np.maximum([across, -across, down, -down], 0)
    cells = directions.reshape(4, _ROWS, _CELL, _COLUMNS, _CELL).sum(axis=(2, 4))
    # The root of each, scaled by the norm of all: beside strong edges, weak ones count, too.
    scaled_cells = np.sqrt(cells.ravel() / max(1, cells.sum())) * _SCALE
    return np.minimum(np.rint(scaled_cells), 127).astype(np.float32)


_BYTES = 4  # that are summed up for each frequency
_DEVIATION = np.sqrt(_BYTES * (256**2 - 1) / 12) / 8  # of the frequencies
_FULL_TURN = _SCALE * _DEVIATION * _BANDWIDTH * 2 * np.pi


@cache
def _frequencies() -> FloatArray:
    """Frequencies of the features, nearly normal; whole numbers within ±64, float32 [512, 1024].

    They are the same in each version of NumPy, which its random numbers need not be.
    """
    shape = (_GRADIENTS, IMAGE_SIZE // 2, _BYTES)
    digest = hashlib.shake_256(b"tillroll image descriptors").digest(int(np.prod(shape)))
    sums = np.frombuffer(digest, np.uint8).reshape(shape).sum(axis=2, dtype=np.int64)
    return np.rint((sums - 127.5 * _BYTES) / 8).astype(np.float32)
