"""Uneven light, and the noise of a sensor."""

import numpy as np
from PIL import Image, ImageChops

from benchmarks.receipts.noise import grayscale, smooth_noise

_MAP_SIZE = (48, 64)
_NOISE_TILE_PX = 320  # larger images repeat their noise

# lighting: tint, brightness between, how uneven
_LIGHTS: dict[str, tuple[tuple[float, float, float], tuple[float, float], float]] = {
    "daylight": ((0.98, 0.99, 1.0), (0.92, 1.0), 0.14),
    "lamp": ((1.0, 0.94, 0.84), (0.88, 1.0), 0.26),
    "office": ((0.975, 1.0, 0.97), (0.9, 1.0), 0.18),
    "dim": ((1.0, 0.93, 0.84), (0.55, 0.75), 0.3),
    "flash": ((0.99, 0.99, 1.0), (0.97, 1.0), 0.35),
    "scanner": ((1.0, 1.0, 1.0), (0.98, 1.0), 0.01),
}


def light_map(rng: np.random.Generator, lighting: str, frame: tuple[int, int]) -> Image.Image:
    """Draws the light on the paper: an "RGB" image to multiply with.

    Args:
      rng: its direction and strength.
      lighting: one of `scene.LIGHTINGS`.
      frame: width and height in pixels.
    """
    tint, (low, high), uneven = _LIGHTS[lighting]
    x = np.linspace(-1, 1, _MAP_SIZE[0], dtype=np.float32)[None, :]
    y = np.linspace(-1, 1, _MAP_SIZE[1], dtype=np.float32)[:, None]
    if lighting == "flash":
        falloff = (x - rng.uniform(-0.3, 0.3)) ** 2 + (y - rng.uniform(-0.3, 0.3)) ** 2
        field = 1 - uneven * falloff / 2
    else:
        direction = rng.uniform(0, 2 * np.pi)
        slope = (x * np.cos(direction) + y * np.sin(direction)) / 2 + 0.5
        field = 1 - uneven * rng.uniform(0.2, 1.0) * slope
        if rng.random() < 0.35:
            # The shadow of a hand or phone: an edge across the picture.
            away = rng.uniform(0, 2 * np.pi)
            edge = x * np.cos(away) + y * np.sin(away) + 0.4 * smooth_noise(rng, _MAP_SIZE, (3, 3))
            softness = rng.uniform(4, 14)
            field = field - uneven / (1 + np.exp(-(edge - rng.uniform(0.2, 0.9)) * softness))
    field = (field * rng.uniform(low, high)).astype(np.float32)
    gray = grayscale(field).resize(frame, Image.Resampling.BICUBIC)
    channels = [gray.point([round(level * part) for level in range(256)]) for part in tint]
    return Image.merge("RGB", channels)


def sensor_noise(rng: np.random.Generator, image: Image.Image, deviation: float) -> Image.Image:
    """The image with Gaussian noise of `deviation` levels (of 255) on its brightness."""
    width, height = (min(side, _NOISE_TILE_PX) for side in image.size)
    levels = rng.standard_normal((height, width), dtype=np.float32) * np.float32(deviation) + 128
    tile = Image.fromarray(np.clip(levels, 0, 255).astype(np.uint8))
    noise = Image.new("L", image.size)
    for left in range(0, image.width, width):
        for top in range(0, image.height, height):
            noise.paste(tile, (left, top))
    if image.mode == "RGB":
        noise = Image.merge("RGB", (noise,) * 3)
    return ImageChops.add(image, noise, 1, -128)
