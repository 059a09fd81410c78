"""Conversion of any color mode to 8-bit RGB or grayscale on white."""

import io
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageCms

from beam_jobs.images.tiff import GrayLevels

_GRAY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F")
_BAND_PIXELS = 1 << 20
_USUAL_LEVELS = GrayLevels()


def in_color(
    image: Image.Image,
    channels: int | None,
    profile: bytes | None,
    levels: GrayLevels = _USUAL_LEVELS,
) -> Image.Image:
    """Converts to 8-bit RGB or grayscale on white; returns the same image if it is that already."""
    gray = image.mode in _GRAY_MODES
    wanted = {1: "L", 3: "RGB", None: "L" if gray else "RGB"}[channels]
    if image.mode.startswith("I") or image.mode == "F":
        image = _eight_bit(image, levels)
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
    clear = image.info.get("transparency")
    if isinstance(clear, tuple) and max(clear) > 255:
        # Of a PNG file of 16 bits, of which Pillow keeps the upper 8.
        image.info["transparency"] = tuple(value >> 8 for value in clear)
    flat = Image.new("RGB", image.size, "white")
    for top, band in _bands(image):
        rgba = band.convert("RGBA")
        # The alpha channel is the mask: where it is 0 the white stays.
        flat.paste(rgba, (0, top), rgba.getchannel("A"))
    return flat


def _eight_bit(image: Image.Image, levels: GrayLevels) -> Image.Image:
    """Scales 16-bit, 32-bit and float grayscale; Pillow's own convert clips them at 255."""
    white = levels.white or _white(image, levels)
    clear = image.info.get("transparency")
    gray = Image.new("L", image.size)
    for top, band in _bands(image):
        values = _values(band, levels)
        shares = np.clip(np.rint(values / white * 255), 0, 255)
        if levels.inverted:
            shares = 255 - shares
        if clear is not None:
            shares[values == clear] = 255
        gray.paste(Image.fromarray(shares.astype(np.uint8)), (0, top))
    return gray


def _white(image: Image.Image, levels: GrayLevels) -> float:
    """Returns the value of white: the smallest usual one that fits, as no format says it."""
    if image.mode.startswith("I;16"):
        return 65535.0
    peak = max(float(_values(band, levels).max()) for _, band in _bands(image))
    usual = [1.0, 255.0, 65535.0] if image.mode == "F" else [255.0, 65535.0]
    if levels.unsigned:
        usual.append(2.0**32 - 1)
    return next((white for white in usual if peak <= white), peak)


def _values(image: Image.Image, levels: GrayLevels) -> npt.NDArray[np.float64]:
    """Returns gray values; 0 for what is no number."""
    values = np.asarray(image)
    if levels.unsigned and image.mode == "I":
        values = values.view(np.uint32)
    return np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)


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
