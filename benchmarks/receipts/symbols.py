"""Logos and barcodes, as masks of ink ("L" images, 255 = ink)."""

from math import cos, pi, sin
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

_OVERSAMPLING = 3


def symbol(kind: str, payload: str, *, height: int, width: int) -> Image.Image:
    """The mask of a logo or barcode.

    Args:
      kind: one of `layout.LOGOS` or `layout.BARCODES`, not "none".
      payload: what a barcode encodes: 12 digits, or any text for "qr".
      height: its height in pixels; a QR code is the largest multiple of its modules within it.
      width: the paper's width in pixels, which a barcode must not exceed.
    """
    if kind == "qr":
        return _qr(payload, height)
    if kind in ("ean13", "code128"):
        return _bars(kind, payload, height=height, width=width)
    return _logo(kind, height)


def printed_code(kind: str, digits: str) -> str:
    """Text below a barcode: EAN-13 adds a check digit."""
    return str(_barcode(kind, digits).get_fullcode())


def _barcode(kind: str, digits: str) -> Any:
    import barcode  # only receipts with a barcode need it

    return barcode.get_barcode(kind, digits)


def _bars(kind: str, digits: str, *, height: int, width: int) -> Image.Image:
    modules = "".join(_barcode(kind, digits).build())
    bits = np.array([[module == "1" for module in modules]])
    scale = max(1, int(width * 0.8) // len(modules))
    mask = _enlarge(bits, scale, height)
    return mask if mask.width <= width else mask.resize((width, height), Image.Resampling.BOX)


def _qr(payload: str, height: int) -> Image.Image:
    import segno

    # Any mask is valid; to search for the best one takes longer than to draw the receipt.
    bits = np.array(segno.make(payload, error="m", micro=False, mask=2).matrix, dtype=bool)
    scale = height // len(bits)
    if scale:
        return _enlarge(bits, scale, scale * len(bits))
    return _enlarge(bits, 1, len(bits)).resize((height, height), Image.Resampling.BOX)


def _enlarge(bits: NDArray[np.bool_], scale: int, height: int) -> Image.Image:
    image = Image.fromarray(bits.astype(np.uint8) * 255)
    return image.resize((bits.shape[1] * scale, height), Image.Resampling.NEAREST)


def _logo(kind: str, height: int) -> Image.Image:
    size = height * _OVERSAMPLING
    mask = Image.new("L", (size, size))
    draw = ImageDraw.Draw(mask)
    if kind == "star":
        draw.ellipse((0, 0, size - 1, size - 1), fill=255)
        draw.polygon(_star(size / 2, size * 0.42), fill=0)
    elif kind == "leaf":
        draw.chord((-size * 0.3, 0, size * 0.75, size), -50, 50, fill=255)
        draw.chord((size * 0.25, 0, size * 1.3, size), 130, 230, fill=255)
        draw.line((size * 0.5, size * 0.2, size * 0.5, size), fill=0, width=max(1, size // 24))
    elif kind == "ring":
        draw.ellipse((0, 0, size - 1, size - 1), outline=255, width=size // 9)
        draw.rectangle((size * 0.32, size * 0.32, size * 0.68, size * 0.68), fill=255)
    elif kind == "stripes":
        for place in range(4):
            top = size * place / 4
            left = size * (3 - place) / 8
            draw.rectangle((left, top, size - 1 - left, top + size * 0.15), fill=255)
    elif kind == "shield":
        points = [(0.05, 0.0), (0.95, 0.0), (0.95, 0.55), (0.5, 1.0), (0.05, 0.55)]
        draw.polygon([(x * size, y * (size - 1)) for x, y in points], fill=255)
        draw.line((size * 0.05, size * 0.3, size * 0.95, size * 0.3), fill=0, width=size // 12)
    else:
        cup = (size * 0.1, size * 0.35, size * 0.72, size - 1)
        draw.rounded_rectangle(cup, size // 6, fill=255)
        draw.arc((size * 0.55, size * 0.45, size * 0.95, size * 0.8), -90, 90, 255, size // 12)
        for x in (0.25, 0.42, 0.58):
            draw.line((x * size, 0, x * size, size * 0.25), fill=255, width=size // 18)
    return mask.resize((height, height), Image.Resampling.BOX)


def _star(center: float, radius: float) -> list[tuple[float, float]]:
    radii = (radius, radius * 0.42)
    return [
        (center + radii[k % 2] * sin(k * pi / 5), center - radii[k % 2] * cos(k * pi / 5))
        for k in range(10)
    ]
