"""Smooth random fields, which textures, light and fading are made of."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def smooth_noise(
    rng: np.random.Generator, size: tuple[int, int], cells: tuple[int, int]
) -> NDArray[np.float32]:
    """Values near 0…1 that vary over about `cells` bumps across and down.

    Args:
      rng: where the values come from.
      size: width and height of the result in pixels.
      cells: bumps across and down; few are smooth, many are rough.

    Returns:
      float32 [height, width].
    """
    grid = rng.random((max(2, cells[1]), max(2, cells[0])), dtype=np.float32)
    field = Image.fromarray(grid).resize(size, Image.Resampling.BICUBIC)
    return np.asarray(field, dtype=np.float32)


def fractal_noise(
    rng: np.random.Generator, size: tuple[int, int], *, octaves: int, cells: int = 3
) -> NDArray[np.float32]:
    """Smooth noise in several sizes, each half as large and half as strong; near 0…1."""
    total = np.zeros(size[::-1], np.float32)
    for octave in range(octaves):
        total += smooth_noise(rng, size, (cells << octave, cells << octave)) / 2 ** (octave + 1)
    return total / np.float32(1 - 0.5**octaves)


def grayscale(field: NDArray[np.float32]) -> Image.Image:
    """A field of 0…1 as an "L" image."""
    return Image.fromarray((np.clip(field, 0, 1) * 255).astype(np.uint8))
