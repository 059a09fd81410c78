"""Pixels as bytes and as numbers in 0…1."""

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.augmentation.pixels import to_float32, to_float32_on_cpu, to_uint8

LEVELS = np.arange(256, dtype=np.uint8)


@pytest.mark.parametrize("convert", [to_float32, to_float32_on_cpu])
def test_all_levels_as_numbers_and_back(convert: Callable):
    numbers = convert(tf.constant(LEVELS))
    np.testing.assert_array_equal(numbers, LEVELS.astype(np.float32) * np.float32(1 / 255))
    np.testing.assert_array_equal(to_uint8(numbers), LEVELS)


def test_numbers_stay():
    numbers = tf.constant([0.0, 0.3, 1.0])
    np.testing.assert_array_equal(to_float32(numbers), numbers)
