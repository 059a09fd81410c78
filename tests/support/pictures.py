"""Image files, and pictures with bars for the tests of decoding."""

import io
from typing import Any

import numpy as np
from PIL import Image


def picture(height: int, width: int) -> np.ndarray:
    """A smooth gradient with lines of dark bars; uint8 [height, width, 3]."""
    down, across = np.mgrid[0:height, 0:width] / [[[height]], [[width]]]
    image = np.stack([255 - 60 * down, 255 - 60 * across, 200 + 50 * down * across], axis=-1)
    bars = (np.floor(down * 12) % 2 == 1) & (np.floor(across * 7) % 2 == 1)
    image[bars] = [20, 40, 60]
    return image.astype(np.uint8)


def encode(image: Image.Image, format_: str, **options: Any) -> bytes:
    """Returns the file that Pillow makes of an image."""
    buffer = io.BytesIO()
    image.save(buffer, format_, **options)
    return buffer.getvalue()


def jpeg(image: np.ndarray) -> bytes:
    return encode(
        Image.fromarray(image[..., 0] if image.shape[2] == 1 else image), "JPEG", quality=95
    )


def resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """By Pillow, with a filter over all that goes into a pixel."""
    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))


def difference(a: Any, b: Any) -> float:
    return float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).mean())
