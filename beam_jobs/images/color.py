"""Conversion of any color mode to 8-bit RGB or grayscale on white."""

import io
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageCms

_GRAY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F")
_BAND_PIXELS = 1 << 20


def in_color(image: Image.Image, channels: int | None, profile: bytes | None) -> Image.Image:
    """Converts to 8-bit RGB or grayscale on white; returns the same image if it is that already."""
    gray = image.mode in _GRAY_MODES
    wanted = {1: "L", 3: "RGB", None: "L" if gray else "RGB"}[channels]
    if image.mode.startswith("I") or image.mode == "F":
        image = _eight_bit(image)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        image = _on_white(image)
    if image.mode == "LAB" and wanted != "RGB":
        image = image.convert("RGB")  # Pillow converts LAB to nothing else
    if profile and image.mode in ("RGB", "CMYK"):
        image = _in_srgb(image, profile)
    return image if image.mode == wanted else image.convert(wanted)


def _bands(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """Yields (top row, rows of the image): copies in a wider mode take 25 bytes a pixel."""
    rows = max(1, _BAND_PIXELS // image.width)
    if rows >= image.height:
        yield 0, image
        return
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))


def _on_white(image: Image.Image) -> Image.Image:
    flat = Image.new("RGB", image.size, "white")
    for top, band in _bands(image):
        rgba = band.convert("RGBA")
        # The alpha channel is the mask: where it is 0 the white stays.
        flat.paste(rgba, (0, top), rgba.getchannel("A"))
    return flat


def _eight_bit(image: Image.Image) -> Image.Image:
    """Scales 16-bit, 32-bit and float grayscale; Pillow's own convert clips them at 255."""
    white = _white(image)
    gray = Image.new("L", image.size)
    for top, band in _bands(image):
        levels = np.clip(np.rint(_finite(band) / white * 255), 0, 255)
        gray.paste(Image.fromarray(levels.astype(np.uint8)), (0, top))
    return gray


def _white(image: Image.Image) -> float:
    if image.mode.startswith("I;16"):
        return 65535.0
    # The format does not say what white is: take the smallest usual one that fits.
    peak = max(float(_finite(band).max()) for _, band in _bands(image))
    usual = (1.0, 255.0, 65535.0) if image.mode == "F" else (255.0, 65535.0)
    return next((white for white in usual if peak <= white), peak)


def _finite(image: Image.Image) -> npt.NDArray[np.float64]:
    return np.nan_to_num(np.asarray(image).astype(np.float64), posinf=0.0, neginf=0.0)


def is_srgb(profile: bytes) -> bool:
    """Returns whether colors of an ICC profile are left as they are: it is sRGB, or broken."""
    try:
        description = ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(io.BytesIO(profile)))
    except (ImageCms.PyCMSError, OSError, TypeError):
        return True
    return "sRGB" in description


def _in_srgb(image: Image.Image, profile: bytes) -> Image.Image:
    if is_srgb(profile):
        return image
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        converted = ImageCms.profileToProfile(
            image, source, ImageCms.createProfile("sRGB"), outputMode="RGB"
        )
    except (ImageCms.PyCMSError, OSError, TypeError):  # a broken profile: viewers ignore it as well
        return image
    return converted if converted is not None else image
