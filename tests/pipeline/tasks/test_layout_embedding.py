"""The embedding: its views, its loss, what its vectors are like, and that it learns."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf

from pipeline.dataset import make_dataset
from pipeline.records.info import load_info
from pipeline.serving.saved_model import export
from pipeline.tasks.layout_embedding import LayoutEmbedding
from pipeline.training.options import TrainOptions
from pipeline.training.trainer import Trainer
from tests.support import dataset_factory
from tests.support.dataset_factory import write_dataset
from tests.support.training import train

SMALL = LayoutEmbedding(size=32, filters=8, units=16)


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 records of black and white blocks, 4 by 4 pixels large, in an order of its own each."""

    def pixels(number: int = 0, *, gray: bool = False, size: object = None) -> np.ndarray:
        dark = np.random.default_rng(number).integers(0, 2, (15, 10, 1), dtype=np.uint8)
        return np.kron(255 * dark, np.ones((4, 4, 1 if gray else 3), np.uint8))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset_factory, "pixels", pixels)
        return write_dataset(tmp_path_factory.mktemp("blocks") / "receipts")


def outputs_of(*angles: float) -> tf.Tensor:
    """Vectors of length 1, [n, 2]."""
    return tf.constant([[math.cos(a), math.sin(a)] for a in angles], tf.float32)


@pytest.mark.slow
def test_views_of_a_receipt_differ_and_need_no_label(blocks: Path):
    config = SMALL.inputs(load_info(blocks))
    assert config.features == ("image",)
    first, again = (
        next(iter(make_dataset(blocks, global_batch_size=4, config=config, start_step=start)))
        for start in (3, 3)
    )
    assert first["image"].shape == (4, 2, 32, 32, 1)
    np.testing.assert_array_equal(first["image"], again["image"])
    one, other = tf.unstack(first["image"], axis=1)
    assert float(tf.reduce_min(tf.reduce_mean(tf.abs(one - other), axis=(1, 2, 3)))) > 0.05


@pytest.mark.parametrize(("size", "units"), [(32, 16), (48, 2)])
def test_embeddings_have_length_1(directory: Path, size: int, units: int):
    task = LayoutEmbedding(size=size, filters=8, units=units)
    model = task.build(load_info(directory))
    images = np.random.default_rng(0).random((5, size, size, 1), np.float32)
    embedding = task.predictions(model(images))["embedding"]
    assert (embedding.shape, embedding.dtype) == ((5, units), tf.float32)
    np.testing.assert_allclose(np.linalg.norm(embedding, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(model(images[3:4], training=True)[0], embedding[3], atol=1e-5)


def test_light_and_the_color_of_paper_count_little(directory: Path):
    keras.utils.set_random_seed(0)
    model = SMALL.build(load_info(directory))
    image = np.full((32, 32, 1), 0.9, np.float32)
    image[8:24:4, 4:28] = 0.1
    gradient = np.linspace(0.5, 1, 32, dtype=np.float32)[None, :, None]
    light, other = image * gradient, image[::-1, ::-1].transpose(1, 0, 2)
    vectors = model(np.stack([image, 0.6 * image, light, other])).numpy()
    cosines = vectors[0] @ vectors.T
    assert cosines[1] > 0.99
    assert min(cosines[1:3]) > cosines[3]


def test_white_images_have_an_embedding(directory: Path):
    embedding = SMALL.build(load_info(directory))(np.ones((2, 32, 32, 1), np.float32))
    assert np.isfinite(embedding).all()


def test_loss_is_the_cross_entropy_of_the_other_view():
    task = LayoutEmbedding(temperature=0.5)
    outputs = outputs_of(0, 0.3, 2, 2.1)  # the views of two receipts
    cosines = np.cos(np.subtract.outer([0, 0.3, 2, 2.1], [0, 0.3, 2, 2.1])) / 0.5
    np.fill_diagonal(cosines, -np.inf)
    each = np.log(np.exp(cosines).sum(axis=1)) - cosines[[0, 1, 2, 3], [1, 0, 3, 2]]
    loss = task.loss(outputs, {})
    assert loss.dtype == tf.float32
    np.testing.assert_allclose(loss, [each[:2].mean(), each[2:].mean()], rtol=1e-5)


def test_loss_is_low_where_views_agree_and_others_do_not():
    agree, alike, crossed = (
        float(tf.reduce_mean(SMALL.loss(outputs_of(*angles), {})))
        for angles in ((0, 0, 3, 3), (1, 1, 1, 1), (0, 3, 0.1, 3.1))
    )
    assert agree < 0.01
    assert alike == pytest.approx(math.log(3), rel=1e-5)
    assert crossed > 3


@pytest.mark.parametrize(
    ("angles", "expected"),
    [
        pytest.param((0, 0.1, 2, 2.1), [1, 1], id="all"),
        pytest.param((0, 1, 2.5, 1.2), [0.5, 0.5], id="half"),
        pytest.param((0, 2, 0.1, 2.1), [0, 0], id="none"),
    ],
)
def test_metric_tells_how_often_the_other_view_is_nearest(angles: tuple, expected: list[float]):
    nearest = SMALL.metrics(outputs_of(*angles), {})["nearest"]
    assert nearest.dtype == tf.float32
    assert nearest.numpy().tolist() == expected


def test_padding_of_an_evaluation_is_similar_to_nothing():
    outputs = outputs_of(0, 1.1, 2, 2.5)
    padded = tf.concat([outputs, outputs_of(0.5, 0.5, 2.2, 2.2)], axis=0)
    batch = {"weight": tf.constant([1.0, 1.0, 0.0, 0.0])}
    np.testing.assert_allclose(SMALL.loss(padded, batch)[:2], SMALL.loss(outputs, {}), rtol=1e-5)
    assert SMALL.metrics(padded, batch)["nearest"][:2].numpy().tolist() == [0.5, 1]
    assert SMALL.metrics(outputs, {})["nearest"].numpy().tolist() == [0.5, 1]
    assert np.isfinite(SMALL.loss(padded, batch)).all()


def test_a_batch_of_one_receipt_teaches_nothing():
    assert float(SMALL.loss(outputs_of(0, 1), {})[0]) == pytest.approx(0, abs=1e-6)


@pytest.mark.slow
def test_learns(blocks: Path):
    _, losses, metrics = train(SMALL, blocks, steps=40, batch_size=16, learning_rate=3e-3)
    assert np.mean(losses[-5:]) < 0.75 * np.mean(losses[:3])
    assert metrics["nearest"] > 0.15  # 1 in 31 by chance


@pytest.mark.slow
def test_a_run_that_goes_on_takes_the_same_steps(blocks: Path):
    def trainer() -> Trainer:
        options = TrainOptions(global_batch_size=8)
        return Trainer(SMALL, tf.distribute.get_strategy(), load_info(blocks), options)

    whole, begun, resumed = trainer(), trainer(), trainer()
    losses = whole.train(whole.batches(), 4).losses
    assert begun.train(begun.batches(), 2).losses == losses[:2]
    for variable, value in zip(resumed.model.weights, begun.model.weights, strict=True):
        variable.assign(value)
    for variable, value in zip(resumed.optimizer.variables, begun.optimizer.variables, strict=True):
        variable.assign(value)
    assert resumed.train(resumed.batches(), 2).losses == pytest.approx(losses[2:], rel=1e-6)
    first, again = (whole.evaluate("train") for _ in range(2))
    assert first.averages == again.averages
    assert 0 < first.averages["nearest"] <= 1


@pytest.mark.slow
def test_views_are_made_on_the_device_as_on_the_host(blocks: Path):
    def losses(placement: str) -> tuple[float, ...]:
        trainer = Trainer(
            SMALL,
            tf.distribute.get_strategy(),
            load_info(blocks),
            TrainOptions(global_batch_size=8, accumulate=2),
            lambda config: dataclasses.replace(
                config.with_features("seed"),
                placement=placement,
                dtype="uint8",
                # The other way round, none is at the beginning that rounds on the host only.
                augmentations=config.augmentations[::-1],
            ),
        )
        return trainer.train(trainer.batches(), 2).losses

    assert losses("host") == pytest.approx(losses("device"), rel=1e-4)


def test_exported_signatures_and_predictions_have_the_embedding(blocks: Path, tmp_path: Path):
    info = load_info(blocks)
    model = SMALL.build(info)
    export(SMALL, model, info, tmp_path / "model")
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures
    files = tf.constant([dataset_factory.jpeg(dataset_factory.pixels(n)) for n in range(3)])
    found = signatures["serving_default"](image_bytes=files)
    assert list(found) == ["embedding"]
    assert found["embedding"].shape == (3, 16)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"size": 16}, "size must be a multiple of 16 pixels, 32 or more, got 16"),
        ({"size": 250}, "size must be a multiple of 16 pixels, 32 or more, got 250"),
        ({"filters": 12}, "filters must be a multiple of 8, got 12"),
        ({"filters": 0}, "filters must be a multiple of 8, got 0"),
        ({"units": 1}, "units must be 2 to 4,096, got 1"),
        ({"units": 5000}, "units must be 2 to 4,096, got 5000"),
        ({"temperature": 0.0}, "temperature must be 0.01 to 10, got 0.0"),
        ({"temperature": float("nan")}, "temperature must be 0.01 to 10, got nan"),
    ],
)
def test_errors(options: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        LayoutEmbedding(**options)
