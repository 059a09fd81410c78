"""Surfaces below the paper, drawn by arithmetic."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from benchmarks.receipts.noise import fractal_noise, grayscale, smooth_noise
from benchmarks.receipts.randomness import pick

Field = NDArray[np.float32]
Color = tuple[int, int, int]

# Dark and light color between which a texture varies.
_PALETTES: dict[str, tuple[tuple[Color, Color], ...]] = {
    "wood": (
        ((82, 50, 28), (158, 108, 66)),
        ((120, 84, 52), (206, 168, 122)),
        ((46, 30, 22), (98, 66, 46)),
        ((140, 118, 96), (204, 190, 170)),
    ),
    "cloth": (
        ((70, 78, 104), (128, 138, 164)),
        ((120, 96, 82), (186, 164, 144)),
        ((58, 74, 62), (112, 130, 112)),
        ((150, 60, 58), (196, 110, 100)),
    ),
    "dark": (((22, 22, 26), (62, 62, 70)), ((34, 26, 22), (78, 66, 58))),
    "plain": (
        ((150, 148, 142), (206, 204, 198)),
        ((96, 112, 124), (150, 166, 178)),
        ((186, 176, 158), (226, 218, 204)),
    ),
    "stone": (
        ((96, 96, 98), (196, 194, 190)),
        ((60, 62, 66), (140, 140, 144)),
        ((168, 160, 150), (230, 226, 220)),
    ),
    "checked": (
        ((160, 52, 50), (232, 226, 218)),
        ((58, 84, 140), (226, 228, 230)),
        ((70, 110, 76), (226, 226, 214)),
    ),
}


def draw_background(
    rng: np.random.Generator, kind: str, *, texture: tuple[int, int], size: tuple[int, int]
) -> Image.Image:
    """A background.

    Args:
      rng: its colors and details.
      kind: one of `scene.BACKGROUNDS`.
      texture: width and height in pixels that it is drawn with.
      size: width and height in pixels to which it is enlarged.

    Returns:
      An "RGB" image.
    """
    field = {
        "wood": _wood,
        "cloth": _cloth,
        "dark": _plain,
        "plain": _plain,
        "stone": _stone,
        "checked": _checked,
    }[kind](rng, texture)
    dark, light = pick(rng, _PALETTES[kind])
    gray = grayscale(field).resize(size, Image.Resampling.BILINEAR)
    return ImageOps.colorize(gray, dark, light)


def _grid(size: tuple[int, int]) -> tuple[Field, Field]:
    """Arrays x [1, width] and y [height, 1], both in units of the larger side."""
    width, height = size
    unit = np.float32(max(size))
    x, y = np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)
    return x[None, :] / unit, y[:, None] / unit


def _wood(rng: np.random.Generator, size: tuple[int, int]) -> Field:
    upright = bool(rng.random() < 0.5)
    across = size if upright else size[::-1]
    x, _ = _grid(across)
    bend = smooth_noise(rng, across, (8, 3))
    rings = np.sin((x * rng.uniform(14, 30) + bend * rng.uniform(1, 3)) * 2 * np.pi)
    fibres = smooth_noise(rng, across, (across[0] // 2, 5))
    planks = rng.uniform(3, 6)
    shade = rng.random(8, dtype=np.float32)[(x * planks).astype(int) % 8]
    field = 0.15 * rings + 0.45 * fibres + 0.3 * shade + 0.15
    field = np.where((x * planks) % 1 < 0.02, field * 0.3, field).astype(np.float32)
    return field if upright else field.T


def _cloth(rng: np.random.Generator, size: tuple[int, int]) -> Field:
    x, y = _grid(size)
    threads = rng.uniform(70, 120) * 2 * np.pi
    weave = 0.25 * (np.sin(x * threads) + np.sin(y * threads))
    field: Field = 0.45 + 0.35 * weave + 0.6 * (fractal_noise(rng, size, octaves=3) - 0.5)
    return field


def _plain(rng: np.random.Generator, size: tuple[int, int]) -> Field:
    return fractal_noise(rng, size, octaves=2, cells=2)


def _stone(rng: np.random.Generator, size: tuple[int, int]) -> Field:
    base = fractal_noise(rng, size, octaves=5, cells=5)
    veins = np.abs(fractal_noise(rng, size, octaves=5, cells=4) - 0.5)
    speckles = smooth_noise(rng, size, (size[0] // 2, size[1] // 2)) - 0.5
    field: Field = 0.3 + base * 0.6 + 0.25 * speckles - 0.3 * np.exp(-veins * 40)
    return field


def _checked(rng: np.random.Generator, size: tuple[int, int]) -> Field:
    x, y = _grid(size)
    count = rng.uniform(6, 12)
    squares = ((x * count) % 1 < 0.5) * np.float32(0.5) + ((y * count) % 1 < 0.5) * np.float32(0.5)
    field: Field = 1 - squares * 0.85 - 0.1 * smooth_noise(rng, size, (60, 60))
    return field.astype(np.float32)
