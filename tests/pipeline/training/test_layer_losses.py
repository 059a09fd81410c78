"""Losses of a model's layers count as in Keras' `fit`, and variables may have no gradient."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf

from pipeline.config import Balance, InputConfig
from pipeline.dataset import make_dataset
from pipeline.records.info import load_info
from pipeline.training.options import TrainOptions
from pipeline.training.trainer import Trainer
from tests.support.dataset_factory import write_dataset
from tests.support.tiny_task import PenalizedTask

pytestmark = pytest.mark.slow

STEPS, ROWS = 6, 8
SIZES = ((24, 24), (36, 24))


def configured(config: InputConfig) -> InputConfig:
    """Weighs examples, and has two sizes."""
    balance = Balance(alpha=0.0)
    return dataclasses.replace(config, sample_weights=True, balance=balance, buckets=SIZES)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sizes") / "receipts"
    return write_dataset(folder, sizes=((40, 40), (60, 40)))


def trainer(
    directory: Path, strategy: tf.distribute.Strategy | None = None, **options: Any
) -> Trainer:
    given = {"steps": STEPS, "global_batch_size": ROWS, "learning_rate": 0.01, **options}
    return Trainer(
        PenalizedTask(),
        strategy or tf.distribute.get_strategy(),
        load_info(directory),
        TrainOptions(weight_decay=0.1, seed=3, **given),
        configured,
    )


def fitted(made: Trainer) -> tuple[list[np.ndarray], list[float]]:
    """Weights and losses of Keras' own loop, from the weights that the trainer begins with."""
    model = PenalizedTask().build(made.info)
    model.set_weights(made.model.get_weights())
    batches = make_dataset(
        made.info.data_dir, global_batch_size=ROWS, config=made.config, seed=made.options.seed
    ).map(lambda batch: (batch["image"], {"logits": batch["label"]}, {"logits": batch["weight"]}))
    optimizer = made.options.make_optimizer()
    optimizer.global_clipnorm = made.options.clip_norm
    model.compile(
        optimizer, {"logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
    )
    losses: list[float] = []
    note = keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: losses.append(logs["loss"]))
    model.fit(batches, steps_per_epoch=1, epochs=STEPS, verbose=0, callbacks=[note])
    return model.get_weights(), losses


@pytest.mark.parametrize(
    ("device", "options"),
    [(None, {"accumulate": 2, "clip_norm": 0.5}), ("CPU:0", {})],
    ids=["default, in parts, clipped", "one device"],
)
def test_losses_and_weights_are_those_of_fit(
    directory: Path, device: str | None, options: dict[str, Any]
):
    made = trainer(directory, device and tf.distribute.OneDeviceStrategy(device), **options)
    weights, expected = fitted(made)
    losses = made.train(made.batches(), STEPS).losses
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    # Adam makes steps of 0.01 of the smallest gradients, too, whose sums are rounded otherwise.
    for weight, same in zip(made.model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(weight, same, atol=5e-4)


def test_workers_whose_gradients_make_one_step_share_the_losses(directory: Path):
    """Two gradients, of half a global batch each, as backup workers make them."""
    made = trainer(directory)
    (batch,) = make_dataset(directory, global_batch_size=ROWS, config=made.config).take(1)
    signature = {
        name: tf.TensorSpec([None] * values.ndim, values.dtype) for name, values in batch.items()
    }
    signature["image"] = tf.TensorSpec([None, None, None, 1])

    def compute(part: dict[str, tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor | None]]:
        traced = tf.function(
            made._replica_gradients_by_size, input_signature=[signature], autograph=False
        )
        return traced(part)

    whole, gradients = compute(batch)
    made._steps.batches_per_step = 2
    first, second = (
        compute({name: values[rows] for name, values in batch.items()})
        for rows in (slice(ROWS // 2), slice(ROWS // 2, None))
    )
    assert float(first[0] + second[0]) == pytest.approx(float(whole), rel=1e-5)
    for gradient, *halves in zip(gradients, first[1], second[1], strict=True):
        assert (gradient is None) == (halves == [None, None])
        if gradient is not None:
            dense = [np.asarray(tf.convert_to_tensor(part)) for part in (gradient, *halves)]
            np.testing.assert_allclose(dense[1] + dense[2], dense[0], atol=1e-5)
