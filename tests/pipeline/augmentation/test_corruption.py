"""Blur, noise, JPEG artifacts and erasing."""

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.augmentation.corruption import Blur, Erase, JpegArtifacts, Noise
from pipeline.augmentation.stateless_random import fold_in

SEEDS = fold_in(tf.range(8, dtype=tf.int64), 0)


def changed(op: object, image: np.ndarray) -> np.ndarray:
    images = np.broadcast_to(image, (len(SEEDS), *image.shape)).astype(np.float32)
    return op({"image": tf.constant(images)}, SEEDS)["image"].numpy()


@pytest.mark.parametrize("sigma", [0.0, 0.3, 0.7, 1.0, 1.6])
def test_blur_spreads_a_point_by_sigma(sigma: float):
    point = np.zeros((31, 31, 1))
    point[15, 15] = 1
    spread = changed(Blur(sigma=(sigma, sigma)), point)[0, :, :, 0].astype(np.float64)
    assert abs(spread.sum() - 1) < 1e-5
    offsets = np.arange(31) - 15
    for axis in (0, 1):
        profile = spread.sum(axis=axis)
        assert abs((profile * offsets).sum()) < 1e-5
        assert abs((profile * offsets**2).sum() - sigma**2) < 1e-4
    if sigma >= 1:  # by then it is a Gaussian to the eye
        gauss = np.exp(-(offsets**2) / (2 * sigma**2))
        assert np.abs(spread.sum(axis=0) - gauss / gauss.sum()).max() < 0.03


def test_blur_keeps_flat_images_and_their_borders():
    np.testing.assert_allclose(changed(Blur(sigma=(1, 1)), np.full((6, 5, 3), 0.7)), 0.7, atol=1e-6)


def test_noise_has_its_deviation_and_no_pattern():
    gray = np.full((64, 64, 3), 0.5)
    noise = changed(Noise(deviation=(0.1, 0.1)), gray).astype(np.float64) - 0.5
    assert np.abs(noise.mean(axis=(1, 2, 3))).max() < 0.006
    assert np.abs(noise.std(axis=(1, 2, 3)) - 0.1).max() < 0.004
    images = np.corrcoef(noise.reshape(len(SEEDS), -1))
    assert np.abs(images - np.eye(len(SEEDS))).max() < 0.06
    channels = np.corrcoef(noise.reshape(-1, 3).T)
    assert np.abs(channels - np.eye(3)).max() < 0.03
    for left, right in ((noise[:, 1:], noise[:, :-1]), (noise[:, :, 1:], noise[:, :, :-1])):
        assert abs(np.corrcoef(left.ravel(), right.ravel())[0, 1]) < 0.03


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_artifacts_are_those_of_the_codec(channels: int):
    image = np.random.default_rng(0).integers(0, 256, (24, 16, channels), dtype=np.uint8)
    encoded = tf.io.encode_jpeg(image, quality=35)
    expected = tf.io.decode_jpeg(encoded, channels=channels).numpy() / np.float32(255)
    done = changed(JpegArtifacts(quality=(35, 35)), image / np.float32(255))
    np.testing.assert_allclose(done, np.broadcast_to(expected, done.shape), atol=1e-6)
    various = changed(JpegArtifacts(quality=(5, 95)), image / np.float32(255))
    assert len(np.unique(various.reshape(len(SEEDS), -1), axis=0)) > 4


def test_erase_paints_one_gray_rectangle_of_the_area_asked():
    op = Erase(area=(0.05, 0.1), aspect=(0.5, 2), gray=(0.2, 0.4))
    painted = changed(op, np.ones((60, 50, 3)))
    sizes = set()
    for image in painted:
        rows, columns = np.nonzero((image != 1).any(axis=2))
        height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
        sizes.add((height, width))
        assert height * width == len(rows)
        assert 0.04 < len(rows) / 3000 < 0.115
        assert 0.45 < width / height < 2.2
        assert len(np.unique(image[rows, columns])) == 1
        assert 0.2 <= image[rows[0], columns[0], 0] <= 0.4
    assert len(sizes) > 4


def test_erase_may_cover_the_whole_image():
    op = Erase(area=(1, 1), aspect=(1, 1), gray=(0.5, 0.5))
    assert (changed(op, np.ones((8, 8, 1))) == 0.5).all()


@pytest.mark.parametrize(
    ("op", "options", "sentence"),
    [
        (Blur, {"sigma": (0, 9)}, r"sigma \(0, 9\) is not allowed: choose a pair"),
        (Noise, {"deviation": (-1, 0)}, "with 0 ≤ low ≤ high ≤ 1"),
        (JpegArtifacts, {"quality": (0, 50)}, "with 1 ≤ low ≤ high ≤ 100"),
        (Erase, {"area": (0, 2)}, r"area \(0, 2\) is not allowed"),
        (Erase, {"aspect": (0, 1)}, "with 0.01 ≤ low"),
        (Erase, {"gray": (0.5, 255)}, r"gray \(0.5, 255\) is not allowed"),
    ],
)
def test_refuses_options(op: type, options: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        op(**options)
