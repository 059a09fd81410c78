"""Records to images and features: the scale of decoding, fitting, windows, and boxes."""

import io
import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.config import InputConfig, RandomCrop
from pipeline.dataset import make_dataset, make_evaluation_dataset
from pipeline.input.crop import crop_boxes, crop_windows
from pipeline.input.decode import (
    decode_batches,
    decode_jpeg,
    jpeg_image,
    raw_images,
)
from pipeline.input.features import parse_features, read_features, stored_feature
from pipeline.input.fit import fit_rectangle
from pipeline.records.info import DatasetInfo, load_info
from schemas.example import encode_example
from schemas.receipt import Label, receipt_features
from tests.support.dataset_factory import BOX, write_dataset

SEEDS = tf.constant(np.random.default_rng(0).integers(0, 2**32, 500))


def picture(height: int, width: int) -> np.ndarray:
    """A smooth gradient with lines of dark bars; uint8 [height, width, 3]."""
    down, across = np.mgrid[0:height, 0:width] / [[[height]], [[width]]]
    image = np.stack([255 - 60 * down, 255 - 60 * across, 200 + 50 * down * across], axis=-1)
    bars = (np.floor(down * 12) % 2 == 1) & (np.floor(across * 7) % 2 == 1)
    image[bars] = [20, 40, 60]
    return image.astype(np.uint8)


def jpeg(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).save(
        buffer, "JPEG", quality=95
    )
    return buffer.getvalue()


def resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """By Pillow, with a filter over all that goes into a pixel."""
    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))


def difference(a: Any, b: Any) -> float:
    return float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).mean())


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
def test_pixels_of_one_size_are_fit_rectangle(size: tuple[int, int]):
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


@pytest.mark.parametrize(("stored", "wanted"), [(1, 3), (3, 1), (1, 1)])
def test_channels(stored: int, wanted: int):
    image = picture(64, 48)
    grey = np.asarray(Image.fromarray(image).convert("L"))[..., None]
    config = InputConfig(height=64, width=48, channels=wanted)
    made = jpeg_image(jpeg(grey if stored == 1 else image), tf.constant([64, 48]), config)
    assert made.shape == (64, 48, wanted)
    assert difference(made, np.repeat(grey, wanted, axis=-1)) < 4


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    labels = (Label(name="total", type="float"),)
    return write_dataset(tmp_path_factory.mktemp("decode") / "receipts", labels=labels)


@pytest.fixture(scope="module")
def raw_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("decode") / "raw", raw=True)


def record(number: int, boxes: list[tuple[float, ...]], texts: list[str]) -> bytes:
    """A record of 100 by 50 pixels with these (xmin, ymin, xmax, ymax)."""
    sides = dict(zip(("xmin", "ymin", "xmax", "ymax"), zip(*boxes, strict=True), strict=False))
    return encode_example(
        receipt_features([Label(name="total", type="float")]),
        {
            "image/encoded": b"not looked at",
            "image/format": "jpeg",
            "image/height": 100,
            "image/width": 50,
            "image/channels": 3,
            "image/source_id": f"Käse-{number}",
            "image/key/sha256": "",
            **{f"image/object/bbox/{s}": list(sides.get(s, ())) for s in ("xmin", "ymin")},
            **{f"image/object/bbox/{s}": list(sides.get(s, ())) for s in ("xmax", "ymax")},
            "image/object/text": texts,
            "receipt/group": "shop",
            "receipt/layout": "beta",
            "receipt/layout_id": 1,
            "receipt/total": 2.5 + number,
        },
    )


RECORDS = [
    record(0, [(0.0, 0.1, 0.5, 0.2), (0.2, 0.4, 1.0, 0.6)], ["SUMME", "1,50 €"]),
    record(1, [], []),
    record(2, [(0.1 * n, 0.0, 0.1 * n + 0.1, 0.5) for n in range(5)], list("abcde")),
]
NAMES = ("boxes", "text", "id", "label", "total", "group", "layout_id")


def features(info: DatasetInfo, config: InputConfig) -> dict[str, np.ndarray]:
    stored = [each for name in NAMES for each in stored_feature(name, info, config)]
    values = parse_features(tf.constant(RECORDS), stored, info, config)
    one_by_one = [parse_features(tf.constant(each), stored, info, config) for each in RECORDS]
    for name, batch_values in values.items():
        np.testing.assert_array_equal(tf.stack([each[name] for each in one_by_one]), batch_values)
    read = read_features(values, info, config, NAMES, tf.zeros(3, tf.int64))
    return {name: values.numpy() for name, values in read.items()}


def test_features(directory: Path):
    config = InputConfig(height=100, width=100, max_boxes=3)
    found = features(load_info(directory), config)
    assert [each.decode() for each in found["id"]] == ["Käse-0", "Käse-1", "Käse-2"]
    assert found["label"].tolist() == found["layout_id"].tolist() == [1, 1, 1]
    assert found["total"].tolist() == [2.5, 3.5, 4.5]
    assert found["group"].tolist() == [b"shop"] * 3
    texts = [["SUMME", "1,50 €", ""], ["", "", ""], ["a", "b", "c"]]
    assert [[each.decode() for each in row] for row in found["text"]] == texts
    assert found["boxes"].shape == (3, 3, 4)
    # 50 columns of 100 are padding, half of them on either side.
    expected = [[0.1, 0.25, 0.2, 0.5], [0.4, 0.35, 0.6, 0.75], [0, 0, 0, 0]]
    np.testing.assert_allclose(found["boxes"][0], expected, atol=1e-6)
    assert not found["boxes"][1].any()
    np.testing.assert_allclose(found["boxes"][2][:, 1], [0.25, 0.3, 0.35], atol=1e-6)


def test_boxes_of_a_stretched_image_keep_their_fractions(directory: Path):
    config = InputConfig(height=70, width=200, fit="stretch", max_boxes=8)
    found = features(load_info(directory), config)
    expected = [[0.1, 0.0, 0.2, 0.5], [0.4, 0.2, 0.6, 1.0]]
    np.testing.assert_allclose(found["boxes"][0, :2], expected, atol=1e-6)
    assert not found["boxes"][0, 2:].any()
    assert found["text"].shape == (3, 8)


def test_a_feature_that_is_not_there(directory: Path):
    sentence = (
        f"{directory} has no feature 'date': choose among image, label, boxes, text, id, weight, "
        "step, row, seed, group, layout, layout_id, total"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        stored_feature("date", load_info(directory), InputConfig())


def batch(directory: Path, size: int = 16, **options: Any) -> dict[str, np.ndarray]:
    """A training batch at the stored size, or another."""
    config = InputConfig(**{"height": 60, "width": 40, "features": ("image", "boxes")} | options)
    dataset = make_dataset(directory, global_batch_size=size, config=config)
    return {name: values.numpy() for name, values in next(iter(dataset)).items()}


def check_boxes_show_what_they_showed(examples: dict[str, np.ndarray]) -> int:
    """Inside a box all is dark but its rim; a pixel outside there is light. Counts the boxes."""
    count = 0
    for image, boxes in zip(examples["image"], examples["boxes"], strict=True):
        height, width = image.shape[:2]
        for ymin, xmin, ymax, xmax in boxes[boxes.any(axis=-1)]:
            top, bottom = round(ymin * height), round(ymax * height)
            left, right = round(xmin * width), round(xmax * width)
            assert bottom - top > 6
            assert right - left > 6
            assert image[top + 2 : bottom - 2, left + 2 : right - 2].max() < 60
            rest = image.copy()
            rest[max(top - 3, 0) : bottom + 3, max(left - 3, 0) : right + 3] = 255
            assert rest.min() > 200
            count += 1
    return count


def test_float_images_are_the_bytes_of_the_others(directory: Path):
    as_bytes, as_floats = (batch(directory, dtype=name)["image"] for name in ("uint8", "float32"))
    assert (as_bytes.dtype, as_floats.dtype) == (np.uint8, np.float32)
    np.testing.assert_allclose(as_floats * 255, as_bytes, atol=1e-4)
    assert as_bytes.min() < 20


CROP = RandomCrop(min_side=0.5, min_visible=0.6)


@pytest.mark.parametrize("fit", ["pad", "stretch"])
@pytest.mark.parametrize("raw", [False, True], ids=["jpeg", "raw"])
def test_boxes_follow_a_window(directory: Path, raw_directory: Path, raw: bool, fit: str):
    source = raw_directory if raw else directory
    options = {"height": 96, "width": 80, "fit": fit, "max_boxes": 2, "dtype": "uint8"}
    examples = batch(source, size=32, crop=CROP, **options)
    boxes = examples["boxes"]
    assert 16 < check_boxes_show_what_they_showed(examples) <= 32
    assert len(np.unique(boxes[:, 0], axis=0)) > 8, "windows are alike"
    assert (boxes >= 0).all()
    assert (boxes <= 1).all()
    if fit == "stretch":
        # Some windows cut through the box, which is clipped to them.
        assert ((boxes == 1) | (boxes == 0)).any(axis=-1)[:, 0].any()


def test_a_window_of_everything_is_the_image(directory: Path, raw_directory: Path):
    everything = RandomCrop(min_side=1)
    for source in (directory, raw_directory):
        cropped, whole = (batch(source, crop=crop, dtype="uint8") for crop in (everything, None))
        np.testing.assert_array_equal(cropped["image"], whole["image"])
        np.testing.assert_allclose(cropped["boxes"], whole["boxes"], atol=1e-6)


def test_evaluation_sees_all_of_an_image(raw_directory: Path):
    config = InputConfig(
        height=60, width=40, dtype="uint8", features=("image", "boxes"), crop=CROP, max_boxes=1
    )
    dataset, _ = make_evaluation_dataset(
        tf.distribute.get_strategy(),
        raw_directory,
        split="train",
        global_batch_size=8,
        config=config,
    )
    examples = next(iter(dataset))
    xmin, ymin, xmax, ymax = BOX
    np.testing.assert_allclose(examples["boxes"][:, 0], [[ymin, xmin, ymax, xmax]] * 8, atol=1e-6)
    assert (examples["image"].numpy()[:, :30] == 255).all()


@pytest.mark.parametrize("size", [(1024, 700), (60, 40), (9, 8), (5, 3), (1, 1), (1001, 1)])
@pytest.mark.parametrize("min_side", [0.01, 0.5, 0.9, 1.0])
def test_windows_are_within_the_image_and_begin_on_a_grid(size: tuple[int, int], min_side: float):
    crop = RandomCrop(min_side=min_side)
    sizes = tf.constant([size] * len(SEEDS), tf.int64)
    windows = crop_windows(SEEDS, sizes, crop).numpy()
    begin, extent = windows[:, :2], windows[:, 2:]
    assert (begin >= 0).all()
    assert (begin % 8 == 0).all()
    assert (extent >= np.maximum(min_side * np.array(size), 1)).all()
    end = begin + extent
    assert (end <= size).all()
    assert ((end % 8 == 0) | (end == size)).all()
    # Of an example alone, and of no other in the batch.
    for number in (0, 77):
        alone = crop_windows(SEEDS[number], tf.constant(size, tf.int64), crop)
        np.testing.assert_array_equal(alone, windows[number])


def test_windows_reach_everywhere():
    size = np.array([1000, 800])
    windows = crop_windows(SEEDS, tf.constant([size] * len(SEEDS)), RandomCrop(min_side=0.5))
    begin, extent = np.split(windows.numpy() / np.tile(size, 2), 2, axis=-1)
    for axis in (0, 1):
        assert 0.5 <= extent[:, axis].min() < 0.53
        assert 0.97 < extent[:, axis].max() <= 1
        assert 0.70 < extent[:, axis].mean() < 0.80
        assert begin[:, axis].min() == 0
        assert (begin + extent)[:, axis].max() == 1
        # As much is cut off before as behind.
        assert abs(np.mean(2 * begin[:, axis] + extent[:, axis] - 1)) < 0.03
    assert abs(np.corrcoef(extent.T)[0, 1]) < 0.15
    assert abs(np.corrcoef(begin.T)[0, 1]) < 0.15


@pytest.mark.parametrize("ratio", [1, 2, 4, 8])
def test_a_window_holds_the_pixels_of_the_whole(ratio: int):
    """At every scale, also where the image's size is no multiple of it."""
    size = (1013, 811)
    encoded = jpeg(picture(*size))
    whole = tf.io.decode_jpeg(encoded, ratio=ratio, channels=3).numpy()
    sizes = tf.constant([size] * 20, tf.int64)
    for window in crop_windows(SEEDS[:20], sizes, RandomCrop(min_side=0.5)):
        least = window[2:] // ratio
        pixels = decode_jpeg(encoded, window[2:], least, channels=3, window=window)
        top, left, height, width = (-(-each // ratio) for each in window.numpy())
        expected = whole[top : top + height, left : left + width]
        assert pixels.shape == expected.shape
        # At full size, the colours of the rim are guessed without what lies beyond.
        assert difference(pixels, expected) < 0.1
        np.testing.assert_array_equal(pixels[2:-2, 2:-2], expected[2:-2, 2:-2])


def test_boxes_of_a_window():
    size = tf.constant([[100, 200]] * 2, tf.int64)
    windows = tf.constant([[40, 80, 40, 80], [0, 0, 100, 200]])
    boxes = np.zeros((2, 6, 4), np.float32)
    boxes[:, :5] = [
        [0.5, 0.5, 0.6, 0.6],  # inside
        [0.3, 0.4, 0.5, 0.8],  # the lower half is
        [0.1, 0.4, 0.5, 0.8],  # a quarter is
        [0.0, 0.0, 0.2, 0.2],  # outside
        [0.0, 0.0, 1.0, 1.0],  # all around: a sixth is
    ]
    moved = crop_boxes(boxes, windows, size, replace(CROP, min_visible=0.4)).numpy()
    expected = np.zeros((6, 4))
    expected[:2] = [[0.25, 0.25, 0.5, 0.5], [0.0, 0.0, 0.25, 1.0]]
    np.testing.assert_allclose(moved[0], expected, atol=1e-6)
    np.testing.assert_allclose(moved[1], boxes[1], atol=1e-6)
    all_kept = crop_boxes(boxes, windows, size, replace(CROP, min_visible=0)).numpy()
    np.testing.assert_allclose(all_kept[0, 2], [0.0, 0.0, 0.25, 1.0], atol=1e-6)
    np.testing.assert_allclose(all_kept[0, 4], [0.0, 0.0, 1.0, 1.0], atol=1e-6)
    assert not all_kept[0, 3].any(), "a box that is not in the window is kept"
    assert not all_kept[0, 5].any()


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
    assert taken == most
