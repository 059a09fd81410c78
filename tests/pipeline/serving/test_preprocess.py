"""Image files in the graph become what the build and the input pipeline make of them."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("simplejpeg")
pytest.importorskip("tensorflow")

import tensorflow as tf
from PIL import Image, ImageDraw

from beam_jobs.images.image import ImageOptions, store_image
from pipeline.config import InputConfig
from pipeline.input.decode import jpeg_image, raw_images
from pipeline.records.info import DatasetInfo, load_info
from pipeline.serving.preprocess import read_image
from tests.support.pictures import encode

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def info(directory: Path) -> DatasetInfo:
    return load_info(directory)


def receipt(width: int, height: int, mode: str = "RGB") -> Image.Image:
    image = Image.new("RGB", (width, height), (250, 246, 235))
    draw = ImageDraw.Draw(image)
    for line in range(1, 14):
        y = line * height // 15
        draw.rectangle((width // 9, y, width * (5 + line % 4) // 9, y + height // 40), "black")
    draw.ellipse((width // 2, height // 2, width * 0.9, height * 0.7), fill=(180, 40, 30))
    if mode == "RGBA":
        alpha = Image.new("L", image.size, 255)
        ImageDraw.Draw(alpha).rectangle((0, 0, width // 3, height // 3), fill=90)
        image.putalpha(alpha)
    if mode == "I;16":
        gray = np.asarray(image.convert("L")).astype(np.uint16) * 257
        return Image.fromarray(gray)
    return image.convert(mode)


def encoded(image: Image.Image, form: str, orientation: int = 1) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 93, "exif": exif} if form == "JPEG" else {}
    return encode(image, form, **options)


FILES = {
    "small JPEG": encoded(receipt(300, 500), "JPEG"),
    "photo on its side": encoded(receipt(1500, 900), "JPEG", 6),
    "gray JPEG": encoded(receipt(700, 1100, "L"), "JPEG", 3),
    "PNG": encoded(receipt(400, 900), "PNG"),
    "transparent PNG": encoded(receipt(1300, 800, "RGBA"), "PNG"),
    "16-bit PNG": encoded(receipt(300, 400, "I;16"), "PNG"),
}
BUILDS = {
    "as it is": ImageOptions(max_side=640),
    "decoded at a reduced scale": ImageOptions(max_side=640, full_decode=False),
    "gray": ImageOptions(max_side=640, channels=1, quality=80),
    "raw": ImageOptions(encoding="raw", raw_size=(160, 120), channels=3),
    "raw gray, stretched": ImageOptions(
        encoding="raw", raw_size=(96, 96), channels=1, fit="stretch"
    ),
}


def built_for(info: DatasetInfo, options: ImageOptions) -> DatasetInfo:
    image = dataclasses.asdict(options)
    (generation,) = info.manifest.generations
    generation = dataclasses.replace(generation, build_options={"image": image})
    manifest = dataclasses.replace(info.manifest, generations=(generation,))
    return dataclasses.replace(info, manifest=manifest)


def through_the_dataset(file: bytes, options: ImageOptions, config: InputConfig) -> np.ndarray:
    stored = store_image(file, [], options)
    shape = (stored.height, stored.width, stored.channels)
    if stored.format == "raw":
        return raw_images(np.frombuffer(stored.encoded, np.uint8).reshape(1, *shape), config)[0]
    return jpeg_image(stored.encoded, tf.constant(shape[:2]), config)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("file", FILES)
def test_equals_what_is_trained_on(info: DatasetInfo, file: str, build: str):
    config = InputConfig(height=128, width=96, channels=1 if build == "gray" else 3)
    expected = np.asarray(through_the_dataset(FILES[file], BUILDS[build], config), np.int32)
    read = tf.function(lambda data: read_image(data, built_for(info, BUILDS[build]), config))
    image = np.asarray(read(tf.constant(FILES[file])))
    assert image.shape == (128, 96, config.channels)
    assert image.dtype == np.uint8
    assert expected.std() > 30
    # Edges differ a little: Pillow's Lanczos filter works in integers, and on halved pixels first.
    assert np.abs(image - expected).mean() < 1
    assert np.quantile(np.abs(image - expected), 0.99) <= 10
    assert abs((image - expected).mean()) < 0.3


def test_what_the_build_keeps_is_read_exactly(info: DatasetInfo):
    config = InputConfig(height=128, width=128, channels=1)
    image = read_image(FILES["small JPEG"], built_for(info, BUILDS["as it is"]), config)
    expected = jpeg_image(FILES["small JPEG"], tf.constant([500, 300]), config)
    np.testing.assert_array_equal(image, expected)


def test_another_format_is_an_error(info: DatasetInfo):
    with pytest.raises(tf.errors.InvalidArgumentError, match="image"):
        read_image(b"%PDF-1.7", info, InputConfig())
