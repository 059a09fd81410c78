"""Image files with a dark rectangle, and what the build stores of them."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from beam_jobs.images.image import ImageOptions, StoredImage
from beam_jobs.sources.row import Box
from tests.support.pictures import encode

ORIENTATION = 0x0112
SIZE = (48, 32)
DARK = (6, 4, 22, 12)  # of the stored image
BOX: Box = (6.0, 4.0, 22.0, 12.0, "TOTAL")
JPEG = ImageOptions(quality=95)
RAW = ImageOptions(encoding="raw", raw_size=(64, 32), channels=3)


def drawn(size: tuple[int, int] = SIZE, dark: Sequence[int] = DARK) -> Image.Image:
    """Returns a white image with a black rectangle."""
    image = Image.new("RGB", size, "white")
    image.paste("black", tuple(dark))
    return image


def noise(size: tuple[int, int] = (64, 48), seed: int = 0) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    return Image.fromarray(values)


def oriented(image: Image.Image, format_: str, orientation: int) -> bytes:
    """Returns the file of an image, with an EXIF orientation; all pixels as sharp as can be."""
    lossless = {"JPEG": {"quality": 95, "subsampling": 0}, "WEBP": {"lossless": True}}
    if format_ == "TIFF":
        return encode(image, format_, tiffinfo={ORIENTATION: orientation})
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return encode(image, format_, exif=exif, **lossless.get(format_, {}))


def decoded(stored: StoredImage) -> np.ndarray:
    """Returns the pixels that a reader of the record sees, [height, width, channels]."""
    shape = (stored.height, stored.width, stored.channels)
    if stored.format == "raw":
        return np.frombuffer(stored.encoded, np.uint8).reshape(shape)
    with Image.open(io.BytesIO(stored.encoded)) as image:
        assert image.format == "JPEG"
        return np.asarray(image).reshape(shape)


def bounds_of_dark(pixels: np.ndarray) -> tuple[float, ...]:
    """Returns xmin, ymin, xmax, ymax of the dark pixels, as fractions of the image."""
    rows, columns = np.nonzero(pixels.min(axis=2) < 128)
    height, width = pixels.shape[:2]
    return (
        columns.min() / width,
        rows.min() / height,
        (columns.max() + 1) / width,
        (rows.max() + 1) / height,
    )
