"""Random image files, whole and damaged. Their pixels are known, or TensorFlow reads them."""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("apache_beam")
pytest.importorskip("tensorflow")

import tensorflow as tf

from beam_jobs.images.image import ImageOptions, StoredImage, store_image
from beam_jobs.images.image_file import image_file
from beam_jobs.rejection import RejectionError
from tests.fuzz.cases import random_cases
from tests.support.image_files import ORIENTATION, decoded
from tests.support.pictures import difference, encode

_TO_GRAY = (0.299, 0.587, 0.114)  # of ITU-R BT.601
_TURNS = {  # quarter turns to the left, after a mirror
    1: (0, False),
    2: (0, True),
    3: (2, False),
    4: (2, True),
    5: (1, True),
    6: (3, False),
    7: (3, True),
    8: (1, False),
}


@dataclass(frozen=True, kw_only=True)
class _File:
    """An image file.

    Attributes:
      format: Pillow's name of its format.
      data: its bytes.
      pixels: what a viewer shows, uint8 [height, width, 1 or 3].
      exact: True if decoders give exactly these pixels.
    """

    format: str
    data: bytes
    pixels: np.ndarray
    exact: bool


def test_random_images():
    for rng in random_cases(250):
        file, options = _random_file(rng), _random_options(rng)
        print(file.format, file.pixels.shape, options)
        stored = _stored(file.data, options)
        assert isinstance(stored, StoredImage) or min(file.pixels.shape[:2]) < 16, stored
        if isinstance(stored, StoredImage):
            _check(stored, file, options)
        damaged = _damaged(rng, file.data)
        shown = _stored(damaged, options)
        if isinstance(shown, StoredImage):
            assert tf.io.decode_image(_model_file(damaged, options)).shape == _shape(shown)
            if file.format == "PNG":  # all its parts have checksums
                _check(shown, file, options)
        else:
            with pytest.raises(RejectionError):
                _model_file(damaged, options)


def _stored(data: bytes, options: ImageOptions) -> StoredImage | RejectionError:
    try:
        return store_image(data, [], options)
    except RejectionError as error:
        return error


def _model_file(data: bytes, options: ImageOptions) -> bytes:
    def never(*_: object) -> StoredImage:
        raise AssertionError("the image is small")

    return image_file(data, options, large=never)


def _shape(stored: StoredImage) -> tuple[int, int, int]:
    return stored.height, stored.width, stored.channels


def _check(stored: StoredImage, file: _File, options: ImageOptions) -> None:
    """Compares what is stored of a whole file with what it shows."""
    shown = _in_channels(file.pixels, options.channels)
    assert stored.full_size == (shown.shape[1], shown.shape[0])
    assert stored.pixels is not None
    if file.exact and options.channels != 1 and stored.pixels.size == stored.full_size:
        assert np.array_equal(np.asarray(stored.pixels).reshape(shown.shape), shown)
    pixels = decoded(stored)
    image = Image.fromarray(shown.squeeze())
    if options.encoding == "raw" and options.fit == "pad":
        canvas = Image.new(image.mode, (stored.width, stored.height), "white")
        scale = min(stored.width / image.width, stored.height / image.height)
        inner = [
            min(limit, max(1, int(np.ceil(side * scale - 0.01))))
            for side, limit in zip(image.size, canvas.size, strict=True)
        ]
        corner = [(limit - side) // 2 for side, limit in zip(inner, canvas.size, strict=True)]
        canvas.paste(image.resize(tuple(inner), Image.Resampling.LANCZOS), tuple(corner))
        image = canvas
    expected = image.resize((stored.width, stored.height), Image.Resampling.LANCZOS)
    # Squares differ by 85 on average; JPEG blurs their colors.
    assert difference(pixels, np.asarray(expected).reshape(pixels.shape)) < 30
    sent = _model_file(file.data, options)
    if stored.format == "jpeg":
        assert sent == stored.encoded
    else:
        assert np.array_equal(tf.io.decode_image(sent), pixels)


def _in_channels(pixels: np.ndarray, channels: int | None) -> np.ndarray:
    if channels in (None, pixels.shape[2]):
        return pixels
    if channels == 3:
        return pixels.repeat(3, axis=2)
    return np.rint(pixels @ np.array(_TO_GRAY)).astype(np.uint8)[..., None]


def _random_options(rng: random.Random) -> ImageOptions:
    options: dict[str, Any] = {
        "max_side": rng.choice([1024, 1024, 200, 60]),
        "channels": rng.choice([None, 1, 3]),
        "quality": 95,
        "max_pixels": 1_000_000,  # damage of a header may ask for more
    }
    if rng.random() < 0.3:
        options |= {
            "encoding": "raw",
            "raw_size": (rng.randint(16, 90), rng.randint(16, 90)),
            "channels": rng.choice([1, 3]),
            "fit": rng.choice(["pad", "stretch"]),
        }
    else:
        options |= {name: rng.random() < 0.3 for name in ("full_decode", "restart_rows")}
    return ImageOptions(**options)


def _random_file(rng: random.Random) -> _File:
    """Draws squares of at least 12 pixels, and saves them in a random way."""
    mode = rng.choice(["L", "RGB", "RGB"])
    squares = rng.randint(1, 12), rng.randint(1, 12)
    side = rng.randint(12, 30)
    small = Image.frombytes(mode, squares, rng.randbytes(squares[0] * squares[1] * len(mode)))
    size = (squares[0] * side + rng.randrange(8), squares[1] * side + rng.randrange(8))
    image = small.resize(size, Image.Resampling.NEAREST)
    orientation = rng.choice([1, 1, *_TURNS])
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    pixels = np.asarray(image).reshape(size[1], size[0], -1)
    format_ = rng.choice(["JPEG", "JPEG", "JPEG", "PNG", "PNG", "WEBP", "TIFF", "BMP", "GIF"])
    exact = True
    if format_ == "JPEG":
        kind = {
            "quality": rng.randint(80, 95),
            "progressive": rng.random() < 0.3,
            "restart_marker_rows": rng.choice([0, 0, 1]),
            **({"subsampling": rng.randrange(3)} if mode == "RGB" else {}),
        }
        data = encode(image, format_, exif=exif, **kind)
        pixels = tf.io.decode_jpeg(data, dct_method="INTEGER_ACCURATE").numpy()
    elif format_ == "PNG":
        saved = rng.choice([image, image.convert("RGBA") if mode == "RGB" else image])
        data = encode(saved, format_, exif=exif)
    elif format_ == "WEBP":
        lossless = rng.random() < 0.5
        data = encode(image, format_, exif=exif, lossless=lossless, quality=95)
        exact, pixels = lossless, pixels.repeat(3 // pixels.shape[2], axis=2)
    elif format_ == "TIFF":
        compression = rng.choice([None, "tiff_lzw", "tiff_adobe_deflate", "packbits"])
        tags = {ORIENTATION: orientation}
        data = encode(image, format_, tiffinfo=tags, compression=compression)
    else:
        orientation = 1  # neither format has EXIF
        image = image.quantize(256, dither=Image.Dither.NONE) if format_ == "GIF" else image
        data = encode(image, format_)
        if format_ == "GIF":
            pixels = np.asarray(image.convert("RGB"))
    turns, mirrored = _TURNS[orientation]
    upright = np.rot90(pixels[:, ::-1] if mirrored else pixels, turns)
    return _File(format=format_, data=data, pixels=upright, exact=exact)


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """Cuts a file, overwrites a byte or many, takes some away, or repeats some."""
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice([1, 2, 64, 512, len(data)]))
    middle = rng.choice([b"", bytes(end - start), rng.randbytes(end - start), data[start:end] * 2])
    return data[:start] + middle + data[end:]
