"""Random windows of stored images, and the boxes in them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.config import InputConfig, RandomCrop
from pipeline.dataset import make_dataset, make_evaluation_dataset
from pipeline.input.crop import crop_boxes, crop_windows
from pipeline.input.decode import decode_jpeg
from tests.support.dataset_factory import BOX, write_dataset
from tests.support.pictures import difference, jpeg, picture

SEEDS = tf.constant(np.random.default_rng(0).integers(0, 2**32, 500))


@pytest.fixture(scope="module")
def raw_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("decode") / "raw", raw=True)


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


@pytest.mark.slow
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
        # At full size, the colors of the rim are guessed without what lies beyond.
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
