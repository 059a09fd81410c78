"""Decoding: its scale, fitting, and what is decoded ahead."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.dataset import make_dataset
from pipeline.input.decode import (
    decode_batches,
    decode_jpeg,
    jpeg_image,
    parallel_decodes,
    raw_images,
)
from pipeline.input.fit import fit_boxes, fit_rectangle, rows_above
from pipeline.records.info import load_info
from tests.support.dataset_factory import write_dataset
from tests.support.pictures import difference, jpeg, picture, resized


@pytest.mark.parametrize(
    ("size", "target", "decoded"),
    [
        ((1024, 768), 256, (256, 192)),  # a quarter, exactly
        ((1021, 765), 256, (256, 192)),  # a hundredth less does not matter
        ((1000, 750), 256, (500, 375)),  # a quarter would be too small
        ((1030, 772), 256, (258, 193)),
        ((2048, 1000), 256, (256, 125)),
        ((4096, 1000), 256, (512, 125)),  # no smaller than an eighth
        ((701, 1024), 256, (176, 256)),  # rows are missing, not columns
        ((300, 200), 256, (300, 200)),
        ((60, 40), 256, (60, 40)),
        ((513, 7), 256, (257, 4)),  # halves are rounded up
        ((1, 1), 256, (1, 1)),
    ],
)
def test_scale_of_decoding(size: tuple[int, int], target: int, decoded: tuple[int, int]):
    config = InputConfig(height=target, width=target)
    encoded, image = jpeg(picture(*size)), picture(*size)
    inner, before = fit_rectangle(tf.constant(size), config)
    pixels = decode_jpeg(encoded, tf.constant(size), inner, 3)
    assert tuple(pixels.shape[:2]) == decoded
    height, width = inner.numpy()
    made = jpeg_image(encoded, tf.constant(size), config).numpy()
    assert made.shape == (target, target, 3)
    top, left = before.numpy()
    shown = made[top : top + height, left : left + width]
    if min(size) > 7:  # of fewer, each pixel counts too much
        assert difference(shown, resized(image, height, width)) < 5
    padding = np.ones((target, target), bool)
    padding[top : top + height, left : left + width] = False
    assert (made[padding] == 255).all()


@pytest.mark.parametrize("size", [(1024, 269), (1024, 270), (271, 1024), (1024, 1024)])
def test_what_is_decoded_at_the_size_it_is_shown_in_is_not_resampled(size: tuple[int, int]):
    encoded = jpeg(picture(*size))
    inner, before = fit_rectangle(tf.constant(size), InputConfig())
    (height, width), (top, left) = inner.numpy(), before.numpy()
    made = jpeg_image(encoded, tf.constant(size), InputConfig()).numpy()
    np.testing.assert_array_equal(
        made[top : top + height, left : left + width], tf.io.decode_jpeg(encoded, ratio=4)
    )


@pytest.mark.parametrize("size", [(30, 20), (20, 30), (30, 30), (1, 30)])
def test_pixels_of_one_size_are_fitted(size: tuple[int, int]):
    pixels = np.stack([picture(*size), 255 - picture(*size)])
    config = InputConfig(height=30, width=30)
    top, left = (30 - size[0]) // 2, (30 - size[1]) // 2
    expected = np.full((2, 30, 30, 3), 255, np.uint8)
    expected[:, top : top + size[0], left : left + size[1]] = pixels
    np.testing.assert_array_equal(raw_images(tf.constant(pixels), config), expected)


@pytest.mark.parametrize(
    ("size", "decoded"),
    [
        ((1024, 512), (512, 256)),
        ((1024, 400), (512, 200)),  # the width loses less than the height gains
        ((1024, 380), (1024, 380)),  # it would lose too much
        ((600, 400), (600, 400)),  # half would have fewer pixels than the target
        ((400, 4096), (200, 2048)),
        ((900, 900), (450, 450)),
    ],
)
def test_scale_of_decoding_what_is_stretched(size: tuple[int, int], decoded: tuple[int, int]):
    config = InputConfig(height=256, width=256, fit="stretch")
    inner, _ = fit_rectangle(tf.constant(size), config)
    assert (
        tuple(decode_jpeg(jpeg(picture(*size)), tf.constant(size), inner, 3).shape[:2]) == decoded
    )


@pytest.mark.parametrize("width", [64, 100, 250, 400])
@pytest.mark.parametrize("size", [(1024, 400), (1000, 397), (601, 399), (300, 400), (200, 400)])
def test_what_is_cut_off_is_not_decoded(size: tuple[int, int], width: int):
    """The rows above are those of the whole image, to the last bit."""
    encoded = jpeg(np.random.default_rng(0).integers(0, 255, (*size, 3), np.uint8))
    config = InputConfig(height=200, width=width, fit="top")
    inner, _ = fit_rectangle(tf.constant(size), config)

    def rows(total: tf.Tensor) -> tf.Tensor:
        return rows_above(total, inner, config)

    whole = decode_jpeg(encoded, tf.constant(size), inner, 3).numpy()
    part = decode_jpeg(encoded, tf.constant(size), inner, 3, rows=rows).numpy()
    expected = len(whole) * min(1, 200 / int(inner[0]))
    assert expected - 0.02 < len(part) < expected + 1
    np.testing.assert_array_equal(part, whole[: len(part)])


@pytest.mark.parametrize("storage", ["raw", "jpeg"])
@pytest.mark.parametrize(
    ("size", "config"),
    [
        pytest.param((256, 256), InputConfig(height=64, width=64), id="a quarter"),
        pytest.param((250, 190), InputConfig(height=48, width=60), id="padded"),
        pytest.param((1024, 768), InputConfig(height=32, width=32), id="beyond an eighth"),
        pytest.param(
            (256, 100), InputConfig(height=40, width=120, fit="stretch"), id="one side shrinks"
        ),
    ],
)
def test_nothing_is_skipped_where_images_shrink(
    storage: str, size: tuple[int, int], config: InputConfig
):
    """Fine black and white stripes become gray, however the image is stored."""
    image = np.full((*size, 3), 255, np.uint8)
    image[::2] = 0
    if storage == "raw":
        shown = raw_images(tf.constant(image[None]), config)[0].numpy()
    else:
        shown = jpeg_image(tf.constant(jpeg(image)), tf.constant(size), config).numpy()
    inner, before = (part.numpy() for part in fit_rectangle(tf.constant(size), config))
    edge = 2  # where the image begins, gray meets white
    shown = shown[before[0] + edge :, before[1] :][: inner[0] - 2 * edge, : inner[1]]
    assert shown.size > 1000
    assert np.abs(shown - 127.5).max() < 40


def test_pixels_shrink_as_jpeg_files_do():
    """A receipt looks the same by both ways of storage: both are near Pillow's filter."""
    image = picture(1024, 768)
    config = InputConfig(height=128, width=96)
    expected = resized(image, 128, 96).astype(float)
    raw = raw_images(tf.constant(image[None]), config)[0].numpy()
    encoded = jpeg_image(tf.constant(jpeg(image)), tf.constant([1024, 768]), config).numpy()
    for shown in (raw, encoded):
        assert np.sqrt(((shown - expected) ** 2).mean()) < 6


def test_stretch_fills_the_target():
    image = picture(500, 200)
    config = InputConfig(height=100, width=300, fit="stretch")
    made = jpeg_image(jpeg(image), tf.constant([500, 200]), config)
    assert made.shape == (100, 300, 3)
    assert difference(made, resized(image, 100, 300)) < 5


@pytest.mark.parametrize("storage", ["raw", "jpeg"])
@pytest.mark.parametrize(
    ("size", "whole"),
    [
        ((500, 200), (250, 100)),  # cut off
        ((160, 200), (80, 100)),  # exactly
        ((80, 200), (40, 100)),  # padded
        ((30, 50), (60, 100)),
        ((1700, 20), (8500, 100)),
    ],
)
def test_the_top_is_shown_at_full_width(
    storage: str, size: tuple[int, int], whole: tuple[int, int]
):
    image = picture(*size)
    config = InputConfig(height=80, width=100, fit="top")
    if storage == "raw":
        made = raw_images(tf.constant(image[None]), config)[0].numpy()
    else:
        made = jpeg_image(jpeg(image), tf.constant(size), config).numpy()
    assert made.shape == (80, 100, 3)
    kept = min(whole[0], 80)
    assert difference(made[:kept], resized(image, *whole)[:kept]) < 6
    assert (made[kept:] == 255).all()


def test_boxes_below_the_top_are_cut_off():
    boxes = tf.constant([[[0.0, 0.1, 0.2, 0.9], [0.3, 0, 0.6, 1], [0.5, 0, 1, 1], [0, 0, 0, 0]]])
    config = InputConfig(height=80, width=100, fit="top")
    fitted = fit_boxes(boxes, tf.constant([[400, 200]], tf.int64), config)
    expected = [[0.0, 0.1, 0.5, 0.9], [0.75, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(fitted[0], expected, atol=1e-6)


@pytest.mark.parametrize(("stored", "wanted"), [(1, 3), (3, 1), (1, 1)])
def test_channels(stored: int, wanted: int):
    image = picture(64, 48)
    gray = np.asarray(Image.fromarray(image).convert("L"))[..., None]
    config = InputConfig(height=64, width=48, channels=wanted)
    made = jpeg_image(jpeg(gray if stored == 1 else image), tf.constant([64, 48]), config)
    assert made.shape == (64, 48, wanted)
    assert difference(made, np.repeat(gray, wanted, axis=-1)) < 4


def batch(directory: Path, size: int = 16, **options: Any) -> dict[str, np.ndarray]:
    """A training batch at the stored size, or another."""
    config = InputConfig(**{"height": 60, "width": 40, "features": ("image", "boxes")} | options)
    dataset = make_dataset(directory, global_batch_size=size, config=config)
    return {name: values.numpy() for name, values in next(iter(dataset)).items()}


def test_float_images_are_the_bytes_of_the_others(directory: Path):
    as_bytes, as_floats = (batch(directory, dtype=name)["image"] for name in ("uint8", "float32"))
    assert (as_bytes.dtype, as_floats.dtype) == (np.uint8, np.float32)
    np.testing.assert_allclose(as_floats * 255, as_bytes, atol=1e-4)
    assert as_bytes.min() < 20


@pytest.mark.parametrize("asked", [None, 1])
def test_a_batch_is_begun_before_the_one_before_is_taken(asked: int | None, tmp_path: Path):
    info = load_info(write_dataset(tmp_path / "receipts"))
    shard = tmp_path / "receipts" / info.split("train").shards[0].name
    record = next(tf.data.TFRecordDataset(str(shard)).as_numpy_iterator())
    taken = 0

    def records() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield record

    batch_size = 16 * len(os.sched_getaffinity(0))
    dataset = decode_batches(
        tf.data.Dataset.from_generator(records, output_signature=tf.TensorSpec([], tf.string)),
        tf.data.Dataset.from_tensors(tf.constant(0, tf.int64)).repeat(),
        info,
        InputConfig(height=8, width=8, parallel_decodes=asked),
        [],
        batch_size=batch_size,
    )
    options = tf.data.Options()
    # Else TensorFlow appends a buffer of its own, which grows where the machine is busy.
    options.experimental_optimization.inject_prefetch = False
    batches = iter(dataset.with_options(options))
    next(batches)
    # The first is taken, the second waits, and so does the third, where it may be begun.
    most = 3 * batch_size if asked is None else 2 * batch_size
    until = time.monotonic() + 60
    while taken < most and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.2)  # any more would come at once
    assert taken >= most
    if asked == 1:
        assert taken == most


@pytest.mark.parametrize(
    ("batch_size", "decodes"), [(1, 33), (32, 64), (1024, 1056), (10**6, 1056)]
)
def test_the_files_of_a_large_batch_are_not_all_in_memory(
    batch_size: int, decodes: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert parallel_decodes(batch_size) == decodes
