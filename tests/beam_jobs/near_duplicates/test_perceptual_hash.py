"""Hashes of images: nearly equal for the same image, encoded again or scaled."""

import io
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageEnhance

pytest.importorskip("simplejpeg")

from beam_jobs.near_duplicates.pairs import MAX_DIFFERING_BITS
from beam_jobs.near_duplicates.perceptual_hash import differing_bits, hash_bands, perceptual_hash
from tests.support.printed import photograph, print_receipt

SHOP = ["99 SPEED MART", "Lot 2811, Jalan Angsa", "Kuala Lumpur", "Cash sale"]


def encoded(image: Image.Image, quality: int) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer)


def scaled(image: Image.Image, share: float) -> Image.Image:
    size = (round(image.width * share), round(image.height * share))
    return encoded(image.resize(size, Image.Resampling.LANCZOS), 85)


def bits(first: Image.Image, second: Image.Image) -> int:
    hashes = np.stack([perceptual_hash(first), perceptual_hash(second)])
    return int(differing_bits(hashes[:1], hashes[1:])[0])


AGAIN: dict[str, Callable[[Image.Image], Image.Image]] = {
    "encoded again": lambda image: encoded(image, 40),
    "color": lambda image: encoded(image.convert("RGB"), 90),
    "darker": lambda image: encoded(ImageEnhance.Brightness(image).enhance(0.7), 90),
    "half": lambda image: scaled(image, 0.5),
    "odd size": lambda image: scaled(image, 333 / image.width),
    "three quarters": lambda image: scaled(image, 0.75),
}


@pytest.mark.parametrize("change", AGAIN.values(), ids=AGAIN.keys())
@pytest.mark.parametrize("seed", range(4))
def test_the_same_image_has_nearly_the_same_hash(
    change: Callable[[Image.Image], Image.Image], seed: int
):
    image = print_receipt(SHOP, seed=seed)
    if seed % 2:
        image = photograph(image, angle=3, seed=seed)
    assert bits(encoded(image, 90), change(image)) <= MAX_DIFFERING_BITS


def test_other_receipts_of_a_shop_have_other_hashes():
    hashes = np.stack([perceptual_hash(print_receipt(SHOP, seed=seed)) for seed in range(30)])
    first, second = np.triu_indices(30, 1)
    assert differing_bits(hashes[first], hashes[second]).min() > MAX_DIFFERING_BITS


def test_a_cropped_image_has_another_hash():
    """Tests what the documentation says."""
    image = print_receipt(SHOP, seed=1)
    assert bits(image, image.crop((0, 60, image.width, image.height))) > MAX_DIFFERING_BITS


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("size", [(16, 16), (600, 1000), (1, 5000)])
def test_an_image_that_shows_nothing_has_no_hash(mode: str, size: tuple[int, int]):
    blank = Image.new(mode, size, "white")
    assert not perceptual_hash(blank).any()
    noise = np.random.default_rng(0).integers(245, 256, (size[1], size[0]), np.uint8)
    assert not perceptual_hash(Image.fromarray(noise)).any()


def test_the_hash_stays_what_it_is():
    """Datasets hold hashes; a change needs another HASH_VERSION."""
    rows, columns = np.indices((300, 200))
    image = Image.fromarray(((rows // 7 + columns // 11) % 2 * 200 + columns // 8).astype(np.uint8))
    assert perceptual_hash(image)[:3].tolist() == [
        9235372253496091170,
        2459565876628824610,
        2459530692122518050,
    ]


def test_bands_are_bits_with_the_number_of_the_band():
    rng = np.random.default_rng(0)
    one = rng.integers(1 << 63, size=(1, 16)).astype(np.uint64)
    bands = hash_bands(one)
    assert bands.shape == (1, 8)
    assert (bands >> np.uint64(24)).tolist() == [list(range(1, 9))]
    for bit in (0, 1, 24, 25, 192, 193, 1023):
        other = one.copy()
        other[0, bit // 64] ^= np.uint64(1) << np.uint64(63 - bit % 64)
        changed = np.flatnonzero((hash_bands(other) != bands)[0]).tolist()
        assert changed == ([(bit - 1) // 24] if 1 <= bit <= 192 else [])
        assert differing_bits(one, other).tolist() == [1]


def test_no_hashes():
    none = np.zeros((0, 16), np.uint64)
    assert hash_bands(none).shape == (0, 8)
    assert differing_bits(none, none).shape == (0,)
