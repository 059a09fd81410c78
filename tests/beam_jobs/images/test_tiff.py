"""TIFF files of rare kinds are stored with the pixels that were drawn, or are refused."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("apache_beam")

from beam_jobs.images.image import ImageOptions, store_image
from beam_jobs.rejection import Reason, RejectionError
from tests.support.pictures import picture
from tests.support.rare_images import tiff

HEIGHT, WIDTH = 60, 40
COLORS = picture(HEIGHT, WIDTH)
GRAY = COLORS[..., 1].copy()
DEEP = GRAY.astype(np.uint16) * 257


def file_of(pixels: Any, bits: int, photometric: int, **tags: Any) -> bytes:
    return tiff([np.asarray(pixels).tobytes()], (WIDTH, HEIGHT), bits, photometric, **tags)


def packed(values: np.ndarray) -> bytes:
    """Packs values of 12 bits: two in three bytes."""
    first, second = values.ravel()[0::2], values.ravel()[1::2]
    pairs = [first >> 4, (first & 15) << 4 | second >> 8, second & 255]
    return np.stack(pairs, 1).astype(np.uint8).tobytes()


def planes(pixels: np.ndarray, bits: int, photometric: int) -> bytes:
    strips = [pixels[..., plane].tobytes() for plane in range(pixels.shape[2])]
    samples = len(strips)
    return tiff(strips, (WIDTH, HEIGHT), bits, photometric, samples=samples, planar=2)


FLOAT = {"t339": [3]}
SHARES = (GRAY / 255).astype(np.float32)
RAMP = list(range(256)) * 3
FILES: dict[str, tuple[bytes, np.ndarray]] = {
    "gray of 8 bits": (file_of(GRAY, 8, 1), GRAY),
    "gray of 8 bits, white is zero": (file_of(255 - GRAY, 8, 0), GRAY),
    "gray of 12 bits": (
        tiff([packed(GRAY.astype(np.uint16) * 16 + GRAY // 16)], (WIDTH, HEIGHT), 12, 1),
        GRAY,
    ),
    "gray of 16 bits": (file_of(DEEP, 16, 1), GRAY),
    "gray of 16 bits, white is zero": (file_of(65535 - DEEP, 16, 0), GRAY),
    "gray of 32 bits": (file_of(GRAY.astype(np.uint32) * 16_843_009, 32, 1), GRAY),
    "gray of floats": (file_of(SHARES, 32, 1, **FLOAT), GRAY),
    "gray of floats, white is zero": (file_of(1 - SHARES, 32, 0, **FLOAT), GRAY),
    "palette of 16 bits": (file_of(GRAY, 8, 3, t320=[v * 257 for v in RAMP]), GRAY),
    "palette of 8 bits": (file_of(GRAY, 8, 3, t320=RAMP), GRAY),
    "RGB of 8 bits": (file_of(COLORS, 8, 2, samples=3), COLORS),
    "RGB of 16 bits": (file_of(COLORS.astype(np.uint16) * 257, 16, 2, samples=3), COLORS),
    "RGB of 8 bits in planes": (planes(COLORS, 8, 2), COLORS),
}


@pytest.mark.parametrize("kind", FILES)
def test_pixels_are_those_that_were_drawn(kind: str) -> None:
    data, expected = FILES[kind]
    stored = store_image(data, [], ImageOptions())
    pixels = np.asarray(stored.pixels).astype(int)
    if pixels.ndim > expected.ndim:  # a palette of grays is of colors
        expected = expected[..., None]
    assert np.abs(pixels - expected).max() <= 1


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        pytest.param(
            planes(COLORS.astype(np.uint16) * 257, 16, 2), "color planes of 16 bits", id="rgb"
        ),
        pytest.param(planes(np.stack([DEEP] * 4, -1), 16, 5), "color planes of 16 bits", id="cmyk"),
        pytest.param(planes(COLORS, 8, 6), "YCbCr without compression", id="ycbcr_in_planes"),
        pytest.param(file_of(COLORS, 8, 6, samples=3), "YCbCr without compression", id="ycbcr"),
    ],
)
def test_what_pillow_reads_wrong_is_refused(data: bytes, kind: str) -> None:
    with pytest.raises(RejectionError) as caught:
        store_image(data, [], ImageOptions())
    assert caught.value.args == (
        Reason.UNSUPPORTED_FORMAT,
        f"a TIFF file with {kind}, which Pillow reads wrong: convert it to PNG",
    )


def test_what_pillow_can_not_read_is_called_by_its_name() -> None:
    data = file_of(np.stack([DEEP, DEEP], -1), 16, 1, samples=2, t338=[2])
    with pytest.raises(RejectionError) as caught:
        store_image(data, [], ImageOptions())
    assert caught.value.args == (
        Reason.UNSUPPORTED_FORMAT,
        "starts as a TIFF file, of a kind that Pillow can't decode: convert it to PNG",
    )
