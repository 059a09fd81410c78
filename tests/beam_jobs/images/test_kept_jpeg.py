"""JPEG files that the build keeps: TensorFlow decodes them to the pixels that Pillow sees."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("apache_beam")

from beam_jobs.images.image import ImageOptions, store_image
from beam_jobs.rejection import RejectionError
from tests.support.pictures import encode, picture
from tests.support.rare_images import lossless_jpeg

KINDS: dict[str, dict[str, Any]] = {
    "gray": {"mode": "L"},
    "4:4:4": {"subsampling": 0},
    "4:2:0": {"subsampling": 2},
    "restart": {"restart_marker_blocks": 3},
    "progressive": {"progressive": True},
}


def jpeg(*, seed: int, mode: str = "RGB", **options: Any) -> bytes:
    """A receipt-like image: dark lines of random lengths on paper."""
    rng = np.random.default_rng(seed)
    pixels = np.full((90, 60, 3), 235, np.uint8)
    for top in range(8, 84, 8):
        pixels[top : top + 3, 6 : int(rng.integers(12, 54))] = rng.integers(0, 90, 3)
    return encode(Image.fromarray(pixels).convert(mode), "JPEG", quality=90, **options)


LOSSLESS = lossless_jpeg(picture(48, 64)[..., 0])


def stored(data: bytes) -> bytes | None:
    """Returns the image that is stored of a file; None if it is rejected."""
    try:
        return store_image(data, [], ImageOptions()).encoded
    except RejectionError:
        return None


def without_end_marker(options: dict[str, Any]) -> bytes:
    """A file whose pixels Pillow decodes without its end marker; most are rejected."""
    return next(
        data for seed in range(200) if stored(data := jpeg(seed=seed, **options)[:-2]) is not None
    )


@pytest.mark.parametrize("kind", ["gray", "4:4:4", "4:2:0", "restart"])
def test_a_file_without_its_end_marker_is_encoded_anew(kind: str) -> None:
    data = without_end_marker(KINDS[kind])
    encoded = stored(data)
    assert encoded is not None
    assert encoded[-2:] == b"\xff\xd9"
    assert encoded[: len(data)] != data


def test_a_lossless_file_is_encoded_anew() -> None:
    encoded = stored(LOSSLESS)
    assert encoded is not None
    assert encoded != LOSSLESS
    with Image.open(io.BytesIO(encoded)) as image:
        assert (image.size, image.mode) == ((64, 48), "L")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("behind", [b"\0", b"\0rubbish" * 9], ids=["zero", "rubbish"])
def test_bytes_behind_the_end_marker_are_not_stored(kind: str, behind: bytes) -> None:
    data = jpeg(seed=1, **KINDS[kind])
    assert stored(data + behind) == data


def damaged(data: bytes, rng: np.random.Generator) -> list[bytes]:
    """Files with one flipped bit, with five bytes of noise, and cut off."""
    files = []
    for _ in range(60):
        flipped = bytearray(data)
        flipped[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        noisy = bytearray(data)
        start = int(rng.integers(len(data) - 5))
        noisy[start : start + 5] = rng.bytes(5)
        files += [bytes(flipped), bytes(noisy)]
    # A marker where there was none: TensorFlow stops at it, Pillow does not always.
    for place in (0.5, 0.9, 0.95):
        start = int(len(data) * place)
        files += [
            data[:start] + marker + data[start + 2 :] for marker in (b"\xff\xe9", b"\xff\xd3")
        ]
    return files + [data[:-missing] for missing in range(1, 30)]


@pytest.mark.parametrize("kind", KINDS)
def test_tensorflow_decodes_whatever_is_stored(kind: str) -> None:
    tf = pytest.importorskip("tensorflow")
    rng = np.random.default_rng(0)
    decoded = 0
    for data in damaged(jpeg(seed=1, **KINDS[kind]), rng):
        if (encoded := stored(data)) is None:
            continue
        pixels = tf.io.decode_jpeg(encoded).numpy()
        with Image.open(io.BytesIO(encoded)) as image:
            assert pixels.shape[:2] == (image.height, image.width)
        decoded += 1
    assert decoded > 40


@pytest.mark.parametrize("kind", KINDS)
def test_undamaged_pixels_are_those_that_pillow_sees(kind: str) -> None:
    tf = pytest.importorskip("tensorflow")
    files = [
        jpeg(seed=2, **KINDS[kind]),
        jpeg(seed=2, **KINDS[kind]) + b"rubbish",
        LOSSLESS,
    ]
    if kind != "progressive":
        files.append(without_end_marker(KINDS[kind]))
    for data in files:
        encoded = stored(data)
        assert encoded is not None
        with Image.open(io.BytesIO(encoded)) as image:
            expected = np.asarray(image).astype(int)
        pixels = tf.io.decode_jpeg(encoded).numpy().reshape(expected.shape)
        assert np.abs(pixels - expected).max() <= 12
