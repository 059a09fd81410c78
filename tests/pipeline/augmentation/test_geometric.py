"""Geometric ops: pixels and boxes move together."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.augmentation.chain import augment
from pipeline.augmentation.geometric import (
    GeometricOp,
    Perspective,
    RandomZoom,
    Rotate,
    Scale,
    Shear,
)
from pipeline.augmentation.projective import warp
from pipeline.augmentation.stateless_random import fold_in
from tests.support.augment_ops import GEOMETRIC, batch

HEIGHT, WIDTH = 48, 40
RECTANGLE = (14, 11, 34, 25)  # ymin, xmin, ymax, xmax in pixels
IDENTITIES = (
    Rotate(degrees=(0, 0)),
    Shear(horizontal=(0, 0), vertical=(0, 0)),
    Scale(factor=(1, 1), aspect=(1, 1)),
    Perspective(displacement=0),
    RandomZoom(side=(1, 1)),
    *(op(probability=0) for op in GEOMETRIC),
)


def drawn(seed: int) -> tuple[dict, tf.Tensor]:
    """A black rectangle on white, and its box."""
    ymin, xmin, ymax, xmax = RECTANGLE
    image = np.ones((1, HEIGHT, WIDTH, 1), np.float32)
    image[0, ymin:ymax, xmin:xmax] = 0
    box = [[[ymin / HEIGHT, xmin / WIDTH, ymax / HEIGHT, xmax / WIDTH], [0, 0, 0, 0]]]
    examples = {"image": tf.constant(image), "boxes": tf.constant(box, tf.float32)}
    return examples, tf.constant([seed], tf.int64)


@pytest.mark.parametrize("ops", [*((op(),) for op in GEOMETRIC), tuple(op() for op in GEOMETRIC)])
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_black_pixels_stay_in_their_box(ops: tuple, seed: int):
    done = augment(drawn(seed)[0], ops, drawn(seed)[1])
    ymin, xmin, ymax, xmax = done["boxes"][0, 0].numpy() * [HEIGHT, WIDTH, HEIGHT, WIDTH]
    assert not done["boxes"][0, 1].numpy().any()
    rows, columns = np.nonzero(done["image"][0, :, :, 0].numpy() < 0.5)
    assert len(rows) > 100
    # A pixel's middle is half a pixel from its side.
    assert rows.min() + 0.5 >= ymin - 1e-3
    assert rows.max() + 0.5 <= ymax + 1e-3
    assert columns.min() + 0.5 >= xmin - 1e-3
    assert columns.max() + 0.5 <= xmax + 1e-3
    # The box is the tightest around the moved corners, which are sharp: a few pixels are paler.
    assert rows.min() - ymin < 2.5
    assert ymax - rows.max() < 3.5
    assert columns.min() - xmin < 2.5
    assert xmax - columns.max() < 3.5


@pytest.mark.parametrize("op", IDENTITIES, ids=repr)
def test_parameters_that_move_nothing_change_no_pixel(op: GeometricOp):
    examples = batch(8)
    seeds = tf.constant(examples.pop("seeds"))
    done = augment({name: tf.constant(value) for name, value in examples.items()}, (op,), seeds)
    np.testing.assert_array_equal(done["image"].numpy(), examples["image"])
    np.testing.assert_allclose(done["boxes"].numpy(), examples["boxes"], atol=1e-7)


def test_a_quarter_turn_is_rot90_and_clockwise():
    image = np.random.default_rng(0).uniform(size=(1, 10, 10, 3)).astype(np.float32)
    examples = {"image": tf.constant(image), "boxes": tf.constant([[[0.0, 0.2, 0.3, 0.4]]])}
    done = Rotate(degrees=(90, 90))(examples, tf.constant([1], tf.int64))
    expected = np.rot90(image, k=-1, axes=(1, 2))
    np.testing.assert_allclose(done["image"].numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(done["boxes"].numpy(), [[[0.2, 0.7, 0.4, 1.0]]], atol=1e-6)


@pytest.mark.parametrize(
    ("op", "moved"),  # (0.4, 0.4, 0.6, 0.6) in an image twice as high as wide
    [
        (Scale(factor=(2, 2), aspect=(1, 1)), (0.3, 0.3, 0.7, 0.7)),
        (Scale(factor=(1, 1), aspect=(4, 4)), (0.45, 0.3, 0.55, 0.7)),
        (Shear(horizontal=(0.5, 0.5), vertical=(0, 0)), (0.4, 0.3, 0.6, 0.7)),
        (Shear(horizontal=(0, 0), vertical=(0.5, 0.5)), (0.375, 0.4, 0.625, 0.6)),
        (Rotate(degrees=(180, 180)), (0.4, 0.4, 0.6, 0.6)),
        (Rotate(degrees=(-90, -90)), (0.45, 0.3, 0.55, 0.7)),
    ],
)
def test_boxes_by_hand(op: GeometricOp, moved: tuple):
    examples = {"image": tf.ones([1, 20, 10, 1]), "boxes": tf.constant([[[0.4, 0.4, 0.6, 0.6]]])}
    done = op(examples, tf.constant([1], tf.int64))
    np.testing.assert_allclose(done["boxes"].numpy()[0, 0], moved, atol=1e-6)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_perspective_moves_corners_no_farther_than_asked_and_crop_stays_inside(seed: int):
    seeds = tf.constant([seed], tf.int64)
    corners = np.array([[x * WIDTH, y * HEIGHT, 1] for x in (-0.5, 0.5) for y in (-0.5, 0.5)])
    moved = corners @ Perspective(displacement=0.1).matrices(seeds, HEIGHT, WIDTH)[0].numpy().T
    moved = moved[:, :2] / moved[:, 2:]
    assert (np.abs(moved - corners[:, :2]) <= 0.1 * np.array([WIDTH, HEIGHT]) + 1e-9).all()
    assert np.abs(moved - corners[:, :2]).max() > 1e-3
    window = RandomZoom(side=(0.5, 0.9)).matrices(seeds, HEIGHT, WIDTH)[0].numpy()
    source = corners @ np.linalg.inv(window).T
    assert (np.abs(source[:, :2]) <= np.array([WIDTH, HEIGHT]) / 2 + 1e-9).all()


def test_composed_ops_are_the_product_of_their_matrices_in_order():
    ops = (Rotate(degrees=(20, 30)), Scale(), Perspective(), Shear(), RandomZoom())
    examples, seeds = drawn(7)
    matrix = np.eye(3)
    for place, op in enumerate(ops):
        matrix = op.matrices(fold_in(seeds, place), HEIGHT, WIDTH)[0].numpy() @ matrix
    ymin, xmin, ymax, xmax = RECTANGLE
    corners = np.array([[x, y, 1] for x in (xmin, xmax) for y in (ymin, ymax)], np.float64)
    corners -= [WIDTH / 2, HEIGHT / 2, 0]
    moved = corners @ matrix.T
    moved = moved[:, :2] / moved[:, 2:] + [WIDTH / 2, HEIGHT / 2]
    (x0, y0), (x1, y1) = moved.min(axis=0), moved.max(axis=0)
    expected = np.clip([y0 / HEIGHT, x0 / WIDTH, y1 / HEIGHT, x1 / WIDTH], 0, 1)
    done = augment(examples, ops, seeds)
    np.testing.assert_allclose(done["boxes"][0, 0].numpy(), expected, atol=1e-6)
    other = augment(examples, ops[::-1], seeds)
    assert np.abs(other["boxes"][0, 0].numpy() - expected).max() > 0.01


def test_one_warp_looks_like_one_after_the_other():
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    smooth = 0.5 + 0.4 * np.sin(rows / 7) * np.cos(columns / 9)
    image = tf.constant(smooth[None, :, :, None], tf.float32)
    ops, seeds = (Rotate(degrees=(9, 10)), Shear(), Perspective()), tf.constant([3], tf.int64)
    composed = augment({"image": image}, ops, seeds)["image"].numpy()
    stepwise = {"image": image}
    for place, op in enumerate(ops):
        stepwise = op(stepwise, fold_in(seeds, place))
    # Away from the sides, where what was pushed out is lost to the next op.
    middle = (slice(None), slice(10, -10), slice(10, -10))
    assert np.abs(composed - stepwise["image"].numpy())[middle].max() < 0.01
    assert np.abs(composed - image.numpy())[middle].max() > 0.05


@pytest.mark.parametrize(
    ("right", "min_visible", "expected"),  # a box 0.2 wide that ends at 0.6, moved to the right
    [
        (0.0, 1.0, (0.4, 0.6)),
        (0.4, 1.0, (0.8, 1.0)),
        (0.5, 0.499, (0.9, 1.0)),
        (0.5, 0.501, None),
        (0.55, 0.2, (0.95, 1.0)),
        (0.55, 0.3, None),
        (0.6, 0.0, None),
        (0.9, 0.0, None),
    ],
)
def test_boxes_are_clipped_and_dropped(right: float, min_visible: float, expected: tuple | None):
    examples = {"image": tf.ones([1, 10, 20, 1]), "boxes": tf.constant([[[0.1, 0.4, 0.3, 0.6]]])}
    matrix = tf.constant([[[1, 0, right * 20], [0, 1, 0], [0, 0, 1]]], tf.float64)
    box = warp(examples, matrix, min_visible=min_visible)["boxes"].numpy()[0, 0]
    wanted = (0.1, expected[0], 0.3, expected[1]) if expected else (0, 0, 0, 0)
    np.testing.assert_allclose(box, wanted, atol=1e-6)


def test_of_composed_ops_the_strictest_min_visible_counts():
    half_out = Scale(factor=(2, 2), aspect=(1, 1), min_visible=0.2)
    examples = {"image": tf.ones([1, 10, 10, 1]), "boxes": tf.constant([[[0.4, 0.6, 0.6, 0.9]]])}
    seeds = tf.constant([1], tf.int64)
    assert augment(examples, (half_out,), seeds)["boxes"].numpy().any()
    strict = Rotate(degrees=(0, 0), min_visible=0.9)
    assert not augment(examples, (half_out, strict), seeds)["boxes"].numpy().any()


def test_a_box_behind_the_camera_is_dropped():
    examples = {"image": tf.ones([1, 10, 10, 1]), "boxes": tf.constant([[[0.2, 0.2, 0.8, 0.8]]])}
    matrix = tf.constant([[[1, 0, 0], [0, 1, 0], [0.5, 0, 1]]], tf.float64)
    assert not warp(examples, matrix, min_visible=0)["boxes"].numpy().any()


def test_what_comes_from_outside_is_white_and_boxes_may_be_absent():
    seeds = tf.constant([1], tf.int64)
    done = Scale(factor=(0.5, 0.5), aspect=(1, 1))({"image": tf.zeros([1, 16, 16, 3])}, seeds)
    assert set(done) == {"image"}
    image = done["image"].numpy()[0]
    assert (image[:3] == 1).all()
    assert (image[:, -3:] == 1).all()
    assert (image[5:11, 5:11] == 0).all()


def test_probability_leaves_the_rest_alone():
    count = 400
    boxes = tf.tile(tf.constant([[[0.3, 0.3, 0.6, 0.7]]]), [count, 1, 1])
    examples = {"image": tf.ones([count, 4, 4, 1]), "boxes": boxes}
    op = Rotate(degrees=(5, 10), probability=0.3)
    done = op(examples, fold_in(tf.range(count, dtype=tf.int64), 0))["boxes"].numpy()
    still = (np.abs(done - boxes.numpy()) < 1e-7).all(axis=(1, 2))
    assert math.isclose(still.mean(), 0.7, abs_tol=0.08)


@pytest.mark.parametrize(
    ("op", "options", "sentence"),
    [
        (Rotate, {"degrees": (5, -5)}, r"degrees \(5, -5\) is not allowed: choose a pair"),
        (Rotate, {"degrees": 5}, r"degrees 5 is not allowed: choose a pair \(low, high\)"),
        (Shear, {"horizontal": (0, 1)}, "with -0.9 ≤ low ≤ high ≤ 0.9"),
        (Shear, {"vertical": (-2, 0)}, r"vertical \(-2, 0\) is not allowed"),
        (Scale, {"factor": (0, 1)}, r"factor \(0, 1\) is not allowed"),
        (Scale, {"aspect": (1, 20)}, r"aspect \(1, 20\) is not allowed"),
        (Perspective, {"displacement": 0.5}, "choose a number from 0 to 0.24"),
        (RandomZoom, {"side": (0.5, 1.5)}, r"side \(0.5, 1.5\) is not allowed"),
        *((op, {"probability": 1.5}, "choose a number from 0 .never. to 1") for op in GEOMETRIC),
        *((op, {"min_visible": -1}, "min_visible -1 is not allowed") for op in GEOMETRIC),
    ],
)
def test_refuses_options(op: type, options: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        op(**options)
