"""File formats, and the orientation that a camera notes instead of turning pixels."""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.receipts.randomness import chance, pick_weighted
from benchmarks.receipts.scene import Scene

_ORIENTATION_TAG = 0x0112
_Transpose = Image.Transpose
# EXIF orientation: how upright pixels are turned into those stored.
_STORED_AS = {
    2: _Transpose.FLIP_LEFT_RIGHT,
    3: _Transpose.ROTATE_180,
    4: _Transpose.FLIP_TOP_BOTTOM,
    5: _Transpose.TRANSPOSE,
    6: _Transpose.ROTATE_90,
    7: _Transpose.TRANSVERSE,
    8: _Transpose.ROTATE_270,
}


def stored_as(
    image: Image.Image, boxes: NDArray[np.float64], orientation: int
) -> tuple[Image.Image, NDArray[np.float64]]:
    """Turns an image as a camera stores it when it notes an EXIF orientation.

    Args:
      image: upright.
      boxes: float64 [n, 4], in pixels of the upright image.
      orientation: EXIF's 1 to 8.

    Returns:
      The image that `PIL.ImageOps.exif_transpose` turns upright, and the boxes in its pixels.
    """
    if orientation == 1:
        return image, boxes
    width, height = image.size
    x, y = boxes[:, [0, 2]], boxes[:, [1, 3]]
    turned_x, turned_y = {
        2: (width - x, y),
        3: (width - x, height - y),
        4: (x, height - y),
        5: (y, x),
        6: (y, width - x),
        7: (height - y, width - x),
        8: (height - y, x),
    }[orientation]
    low, high = (
        np.stack([f(turned_x, axis=1), f(turned_y, axis=1)], axis=1) for f in (np.min, np.max)
    )
    return image.transpose(_STORED_AS[orientation]), np.concatenate([low, high], axis=1)


def draw_orientation(rng: np.random.Generator, scene: Scene) -> int:
    """An EXIF orientation; scanners note none, and phones rarely mirror."""
    if scene.style == "scan" or chance(rng, 0.82):
        return 1
    return pick_weighted(rng, {6: 0.55, 8: 0.2, 3: 0.15, 2: 0.025, 4: 0.025, 5: 0.025, 7: 0.025})


def draw_format(rng: np.random.Generator, scene: Scene, orientation: int) -> str:
    """A file name's suffix; an image with an orientation is a JPEG or WebP."""
    if scene.style == "scan" and scene.megapixels < 2:
        return pick_weighted(rng, {"jpg": 0.5, "png": 0.25, "tif": 0.25})
    if scene.megapixels < 3 and orientation in (1, 6):
        return pick_weighted(rng, {"jpg": 0.9, "webp": 0.1})
    return "jpg"


def encoded(
    image: Image.Image, *, suffix: str, orientation: int, rng: np.random.Generator
) -> bytes:
    """The file's bytes."""
    file = io.BytesIO()
    options: dict[str, object] = {}
    if orientation != 1:
        exif = Image.Exif()
        exif[_ORIENTATION_TAG] = orientation
        options["exif"] = exif
    if suffix == "jpg":
        quality = int(rng.integers(55, 96))
        image.save(file, "JPEG", quality=quality, **options)
    elif suffix == "webp":
        image.save(file, "WEBP", quality=int(rng.integers(60, 93)), method=2, **options)
    elif suffix == "png":
        image.save(file, "PNG", compress_level=4, **options)
    else:
        # Uncompressed: libtiff's encoders leave bytes of uninitialized memory in the file.
        image.save(file, "TIFF", **options)
    return file.getvalue()
