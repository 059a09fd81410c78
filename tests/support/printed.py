"""Images of receipts with printed text, in a scan or in a photo."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

LINE = 44  # pixels


def print_receipt(lines: Sequence[str], *, width: int = 600, seed: int = 0) -> Image.Image:
    """Prints lines, and below them items that depend on the seed; grayscale, on white."""
    rng = np.random.default_rng(seed)
    items = [f"item {rng.integers(10**6)}      {rng.integers(9999) / 100:.2f}" for _ in range(18)]
    printed = [*lines, "", *items]
    image = Image.new("L", (width, LINE * (len(printed) + 2)), 255)
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(printed):
        font = ImageFont.load_default(34 if number == 0 else 26)
        draw.text((30, LINE * (number + 1)), line, fill=20, font=font)
    return image


def photograph(
    sheet: Image.Image, *, angle: float = 0, shadow: float = 0, seed: int = 0
) -> Image.Image:
    """Lays a sheet on a dark table, turned by some degrees, and takes a noisy photo.

    A soft shadow may fall on its right half, which takes the given share of the light.
    """
    margin = 120
    turned = sheet.rotate(angle, Image.Resampling.BICUBIC, expand=True, fillcolor=60)
    photo = Image.new("L", (turned.width + 2 * margin, turned.height + 2 * margin), 60)
    photo.paste(turned, (margin, margin))
    light = 0.9 - 0.9 * shadow / (1 + np.exp(-np.linspace(-6, 6, photo.width)))
    noise = np.random.default_rng(seed).normal(0, 6, (photo.height, photo.width))
    pixels = np.clip(np.asarray(photo) * light + noise, 0, 255)
    return Image.fromarray(pixels.astype(np.uint8))
