"""Rows cut out of a JPEG file decode to the pixels of the whole file."""

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.input.restart_rows import cut_rows
from schemas.restart_rows import with_row_table
from tests.support.pictures import encode

HEIGHT, WIDTH = 701, 203
NOISE = np.random.default_rng(0).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
PAGE = Image.fromarray(NOISE)
FILES = {
    "4:2:0": encode(PAGE, "JPEG", restart_marker_rows=1),
    "4:2:2": encode(PAGE, "JPEG", restart_marker_rows=1, subsampling=1),
    "4:4:4": encode(PAGE, "JPEG", restart_marker_rows=1, subsampling=0),
    "gray": encode(PAGE.convert("L"), "JPEG", restart_marker_rows=1),
}
TOPS = (0, 1, 8, 13, 14, 16, 63, 64, 127, 128, 129, 130, 255, 256, 349, 600, 700)


@tf.function(autograph=False)
def decoded(file: tf.Tensor, window: tf.Tensor, ratio: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The window of the whole file, and of the rows alone, at a scale."""
    part, inner = cut_rows(file, window)
    whole, alone = (
        tf.image.decode_and_crop_jpeg(data, (place + (ratio - 1)) // ratio, 3, ratio)
        for data, place in ((file, window), (part, inner))
    )
    return whole, alone


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("height", [1, 16, 100, HEIGHT])
def test_pixels_are_those_of_the_whole_file(kind: str, height: int):
    file = tf.constant(with_row_table(FILES[kind]))
    for top in TOPS:
        rows = min(height, HEIGHT - top)
        for ratio in (1, 2, 4, 8):
            if -(-top // ratio) - (-rows // ratio) > -(-HEIGHT // ratio):
                continue  # rounded up, the window ends below the image
            window = tf.constant([top, 16, rows, 100])
            expected, found = decoded(file, window, ratio)
            np.testing.assert_array_equal(found, expected)


def test_other_rows_are_left_out():
    file = with_row_table(FILES["4:2:0"])
    part, inner = cut_rows(tf.constant(file), tf.constant([300, 0, 30, WIDTH]))
    assert len(part.numpy()) < len(file) / 5
    assert inner.numpy().tolist() == [300 - 256, 0, 30, WIDTH]
    assert tf.io.decode_jpeg(part).shape == (352 - 256, WIDTH, 3)
