"""Ops of light and color."""

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.augmentation.photometric import Brightness, Contrast, Gamma, Shadow, UnevenLight
from pipeline.augmentation.stateless_random import fold_in
from tests.support.augment_ops import PHOTOMETRIC, batch

SEEDS = fold_in(tf.range(8, dtype=tf.int64), 0)


def changed(op: object, image: np.ndarray) -> np.ndarray:
    images = np.broadcast_to(image, (len(SEEDS), *image.shape)).astype(np.float32)
    return op({"image": tf.constant(images)}, SEEDS)["image"].numpy()


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        (Brightness(factor=(0.5, 0.5)), 0.8, 0.4),
        (Contrast(factor=(0.5, 0.5)), 1.0, 0.75),
        (Contrast(factor=(0.5, 0.5)), 0.2, 0.35),
        (Contrast(factor=(0, 0)), 0.9, 0.5),
        (Gamma(gamma=(2, 2)), 0.5, 0.25),
        (Gamma(gamma=(0.5, 0.5)), 0.25, 0.5),
        (Gamma(gamma=(3, 3)), 0.0, 0.0),
        (Gamma(gamma=(3, 3)), 1.0, 1.0),
    ],
)
def test_one_pixel_by_hand(op: object, value: float, expected: float):
    np.testing.assert_allclose(changed(op, np.full((3, 5, 1), value)), expected, atol=1e-6)


@pytest.mark.parametrize("op", PHOTOMETRIC)
def test_probability_0_changes_no_bit_and_other_keys_pass(op: type):
    given = batch(3, height=9, width=7)
    image = tf.constant(given["image"] / np.float32(255))
    examples = {"image": image, "boxes": tf.constant(given["boxes"])}
    done = op(probability=0)(examples, tf.constant(given["seeds"]))
    np.testing.assert_array_equal(done["image"].numpy(), image.numpy())
    assert done["boxes"] is examples["boxes"]


@pytest.mark.parametrize("op", PHOTOMETRIC)
def test_probability_half_changes_some(op: type):
    image = np.random.default_rng(0).uniform(size=(24, 24, 3))
    whole = changed(op(probability=0.5), image)
    same = (whole == image.astype(np.float32)).all(axis=(1, 2, 3))
    assert 1 <= same.sum() <= 7


@pytest.mark.parametrize("op", [UnevenLight(falloff=(0.4, 0.4)), Shadow(darkness=(0.4, 0.4))])
def test_light_takes_no_more_than_asked_and_is_uneven(op: object):
    white = changed(op, np.ones((40, 30, 3)))
    assert white.max() <= 1
    assert white.min() >= 0.6 - 1e-6
    assert (np.ptp(white, axis=(1, 2, 3)) > 0.05).all()
    np.testing.assert_array_equal(white[..., 0], white[..., 2])
    # It is a factor: on gray paper as on white, and smooth from pixel to pixel.
    np.testing.assert_allclose(changed(op, np.full((40, 30, 3), 0.5)), white / 2, atol=1e-6)
    assert np.abs(np.diff(white, axis=1)).max() < 0.35


def test_light_is_darkest_in_a_corner():
    white = changed(UnevenLight(falloff=(0.4, 0.4)), np.ones((20, 30, 1)))[..., 0]
    corners = white[:, [0, 0, -1, -1], [0, -1, 0, -1]]
    np.testing.assert_array_equal(corners.min(axis=1), white.min(axis=(1, 2)))
    np.testing.assert_allclose(white.min(axis=(1, 2)), 0.6, atol=0.02)


def test_a_softer_shadow_has_a_wider_edge():
    def edge(softness: float) -> np.ndarray:
        op = Shadow(darkness=(0.4, 0.4), softness=(softness, softness))
        white = changed(op, np.ones((64, 64, 1)))
        return ((white > 0.61) & (white < 0.99)).mean(axis=(1, 2, 3))

    assert (edge(0.2) > 2 * edge(0.03)).all()


@pytest.mark.parametrize(
    ("op", "options", "sentence"),
    [
        (Brightness, {"factor": (-1, 1)}, r"factor \(-1, 1\) is not allowed: choose a pair"),
        (Contrast, {"factor": (0, 11)}, "with 0 ≤ low ≤ high ≤ 10"),
        (Gamma, {"gamma": (0, 1)}, r"gamma \(0, 1\) is not allowed"),
        (UnevenLight, {"falloff": (0, 1)}, "with 0 ≤ low ≤ high ≤ 0.95"),
        (Shadow, {"darkness": (0.5, 0.4)}, r"darkness \(0.5, 0.4\) is not allowed"),
        (Shadow, {"softness": (0, 1)}, "with 0.001 ≤ low"),
        *((op, {"probability": -0.1}, "probability -0.1 is not allowed") for op in PHOTOMETRIC),
    ],
)
def test_refuses_options(op: type, options: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        op(**options)
