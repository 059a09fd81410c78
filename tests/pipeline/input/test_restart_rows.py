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
TOPS = (0, 1, 8, 14, 16, 63, 64, 127, 128, 129, 130, 255, 256, 600, 700)


@tf.function(autograph=False)
def decoded(file: tf.Tensor, window: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """The window of the whole file, and of the rows alone, at each scale."""
    part, inner = cut_rows(file, window)
    return [
        [
            tf.image.decode_and_crop_jpeg(data, (place + (ratio - 1)) // ratio, 3, ratio)
            for ratio in (1, 2, 4, 8)
        ]
        for data, place in ((file, window), (part, inner))
    ]


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("height", [1, 16, 100, HEIGHT])
def test_pixels_are_those_of_the_whole_file(kind: str, height: int):
    file = tf.constant(with_row_table(FILES[kind]))
    for top in TOPS:
        window = [top // 8 * 8, 16, min(height, HEIGHT - top // 8 * 8), 100]
        whole, part = decoded(file, tf.constant(window))
        for expected, found in zip(whole, part, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_other_rows_are_left_out():
    file = with_row_table(FILES["4:2:0"])
    part, inner = cut_rows(tf.constant(file), tf.constant([300, 0, 30, WIDTH]))
    assert len(part.numpy()) < len(file) / 5
    assert inner.numpy().tolist() == [300 - 256, 0, 30, WIDTH]
    assert tf.io.decode_jpeg(part).shape == (336 - 256, WIDTH, 3)
