"""Any colour mode to 8-bit RGB or greyscale on white."""

import io

import numpy as np
from PIL import Image, ImageCms

_GREY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F")


def in_colour(image: Image.Image, channels: int | None, profile: bytes | None) -> Image.Image:
    """8-bit RGB or greyscale on white; the image itself if it is that already."""
    grey = image.mode in _GREY_MODES
    wanted = {1: "L", 3: "RGB", None: "L" if grey else "RGB"}[channels]
    if image.mode.startswith("I") or image.mode == "F":
        image = _eight_bit(image)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        flat = Image.new("RGB", image.size, "white")
        flat.paste(rgba, mask=rgba.getchannel("A"))
        image = flat
    if image.mode == "LAB" and wanted != "RGB":
        image = image.convert("RGB")  # Pillow converts LAB to nothing else
    if profile and image.mode in ("RGB", "CMYK"):
        image = _in_srgb(image, profile)
    return image if image.mode == wanted else image.convert(wanted)


def _eight_bit(image: Image.Image) -> Image.Image:
    """16-bit, 32-bit and float greyscale; Pillow's own convert clips them at 255."""
    values = np.nan_to_num(np.asarray(image).astype(np.float64), posinf=0.0, neginf=0.0)
    if image.mode.startswith("I;16"):
        white = 65535.0
    else:  # the format does not say what white is: take the least usual one that fits
        peak = float(values.max())
        usual = (1.0, 255.0, 65535.0) if image.mode == "F" else (255.0, 65535.0)
        white = next((each for each in usual if peak <= each), peak)
    return Image.fromarray(np.clip(np.rint(values / white * 255), 0, 255).astype(np.uint8))


def _in_srgb(image: Image.Image, profile: bytes) -> Image.Image:
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if "sRGB" in ImageCms.getProfileDescription(source):
            return image
        converted = ImageCms.profileToProfile(
            image, source, ImageCms.createProfile("sRGB"), outputMode="RGB"
        )
    except (ImageCms.PyCMSError, OSError, TypeError):  # a broken profile: viewers ignore it as well
        return image
    return converted if converted is not None else image
