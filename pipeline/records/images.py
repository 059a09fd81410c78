"""Images of records decoded to one size, without TensorFlow."""

import io
import math
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

_RATIOS = (8, 4, 2, 1)  # at which JPEG decoders can shrink
# As in `pipeline.input.decode` and `pipeline.input.fit`, where they are explained.
_MIN_AREA, _MIN_SIDE = 0.98**2, 0.75
_ROUNDING = 0.01
_WHITE = 255


def decode_image(
    image: bytes | npt.NDArray[np.uint8],
    *,
    height: int,
    width: int,
    channels: Literal[1, 3] = 3,
    fit: Literal["pad", "stretch", "top"] = "pad",
) -> npt.NDArray[np.uint8]:
    """Decodes the image of a record, and fits it into a size as `InputConfig` does.

    A JPEG file is decoded at the smallest scale that suffices, which takes a fraction of the time.
    Pixels differ by some levels of 255 from `make_dataset`, because TensorFlow has other filters.

    Args:
      image: `image/encoded` of `Records`: a JPEG file, or pixels, uint8 [height, width, channels].
      height, width: size in pixels.
      channels: 1 for grayscale, 3 for RGB.
      fit: "pad" with white, "stretch", or "top" to cut off below.

    Returns:
      uint8 [height, width, channels].

    Raises:
      ValueError: an option has another value, or the bytes are no image.
    """
    if height < 1 or width < 1 or channels not in (1, 3) or fit not in ("pad", "stretch", "top"):
        raise ValueError(
            "height and width must be at least 1, channels 1 or 3, and fit 'pad', 'stretch' or "
            f"'top', got {height}, {width}, {channels!r} and {fit!r}"
        )
    mode = "RGB" if channels == 3 else "L"
    try:
        opened = _open(image)
        inner = _inner_size(opened.size, (width, height), fit)
        opened.draft(mode, _drafted_size(opened.size, inner))
        picture = opened.convert(mode)
    except (OSError, Image.DecompressionBombError) as error:
        raise ValueError(f"the image can't be decoded: {error}") from error
    # Rows below the target are not scaled: with 300 of 400 rows, three quarters of the source.
    shown = inner[0], min(inner[1], height)
    box = (0, 0, picture.width, picture.height * shown[1] / inner[1])
    if picture.size != inner or shown != inner:
        picture = picture.resize(shown, Image.Resampling.BILINEAR, box)
    pixels = np.asarray(picture).reshape(shown[1], shown[0], channels)
    if shown == (width, height):
        return pixels.copy()  # one that can be written to, which PyTorch wants
    canvas = np.full((height, width, channels), _WHITE, np.uint8)
    column = (width - shown[0]) // 2
    row = 0 if fit == "top" else (height - shown[1]) // 2
    canvas[row : row + shown[1], column : column + shown[0]] = pixels
    return canvas


def _open(image: bytes | npt.NDArray[np.uint8]) -> Image.Image:
    if isinstance(image, bytes):
        return Image.open(io.BytesIO(image))
    return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)


def _inner_size(size: tuple[int, int], target: tuple[int, int], fit: str) -> tuple[int, int]:
    """Returns (width, height) to which an image is scaled; with "top", it may be higher."""
    if fit == "stretch":
        return target
    scales = [wanted / side for wanted, side in zip(target, size, strict=True)]
    scale = scales[0] if fit == "top" else min(scales)
    width, height = (max(1, math.ceil(side * scale - _ROUNDING)) for side in size)
    return width, height


def _drafted_size(size: tuple[int, int], inner: tuple[int, int]) -> tuple[int, int]:
    """Returns the (width, height) at the smallest scale that suffices, as Pillow wants it."""
    for ratio in _RATIOS:
        sides = [math.ceil(s / ratio) / wanted for s, wanted in zip(size, inner, strict=True)]
        if sides[0] * sides[1] >= _MIN_AREA and min(sides) >= _MIN_SIDE:
            break
    # Pillow divides by what it is given, and rounds down.
    width, height = (max(1, side // ratio) for side in size)
    return width, height
