"""The training dataset: its elements, its order, and where it starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf

from pipeline.config import Balance, InputConfig, Reading
from pipeline.dataset import make_dataset, make_distributed_dataset
from pipeline.records.info import load_info
from tests.support.dataset_factory import BOX, LAYOUTS, write_dataset

pytestmark = pytest.mark.slow

FEATURES = ("image", "label", "boxes", "id")
SMALL = InputConfig(height=64, width=64, channels=1, features=FEATURES)


def ids_of(dataset: tf.data.Dataset, batches: int) -> list[str]:
    return [
        each.decode() for batch in dataset.take(batches) for each in batch["id"].numpy().tolist()
    ]


@pytest.mark.parametrize("raw", [False, True], ids=["jpeg", "raw"])
@pytest.mark.parametrize("gray", [False, True], ids=["stored RGB", "stored gray"])
@pytest.mark.parametrize("channels", [1, 3])
def test_image_is_fitted_and_boxes_follow(tmp_path: Path, raw: bool, gray: bool, channels: int):
    directory = write_dataset(tmp_path / "receipts", raw=raw, gray=gray)
    config = InputConfig(
        height=96, width=96, channels=channels, features=("image", "boxes"), max_boxes=3
    )
    batch = next(iter(make_dataset(directory, global_batch_size=4, config=config)))
    assert batch["image"].shape == (4, 96, 96, channels)
    assert batch["image"].dtype == tf.float32
    # 60 by 40 pixels become 96 by 64, with 16 white columns on either side.
    assert batch["boxes"].shape == (4, 3, 4)
    xmin, ymin, xmax, ymax = BOX
    expected = [ymin, (xmin * 64 + 16) / 96, ymax, (xmax * 64 + 16) / 96]
    np.testing.assert_allclose(batch["boxes"][0, 0], expected, atol=1e-6)
    np.testing.assert_array_equal(batch["boxes"][0, 1:], 0)
    image = batch["image"][0].numpy()
    assert image.min() >= 0
    assert image.max() <= 1
    top, left, bottom, right = (round(each * 96) for each in expected)
    assert image[top + 3 : bottom - 3, left + 3 : right - 3].max() < 0.1
    assert image[: top - 3].min() > 0.9
    assert image[:, :15].min() == 1


def test_tuple_is_what_keras_takes(directory: Path):
    config = InputConfig(height=32, width=32, channels=3)
    images, labels = next(iter(make_dataset(directory, global_batch_size=8, config=config)))
    assert images.shape == (8, 32, 32, 3)
    assert labels.dtype == tf.int64
    assert set(labels.numpy().tolist()) <= set(range(len(LAYOUTS)))


def test_weights_come_third(directory: Path):
    config = InputConfig(height=32, width=32, sample_weights=True, balance=Balance(alpha=0))
    dataset = make_dataset(directory, global_batch_size=8, config=config)
    _, labels, weights = next(iter(dataset))
    # Every layout gets as many places, but for "omega", whose single record comes 8 times.
    counts = np.array([20, 9, 2, 1])
    places = np.array([32 - 8, 32 - 8, 32 - 8, 3 * 8]) / 3
    np.testing.assert_allclose(weights, (counts / places)[labels], rtol=1e-4)


def test_phases_follow_each_other(directory: Path):
    """Each is what its alpha alone would be from its step on, weights included."""

    def batches(alpha: Any, steps: range) -> list[dict[str, np.ndarray]]:
        config = InputConfig(
            height=8,
            width=8,
            features=("image", "id", "step", "row", "seed", "weight"),
            balance=Balance(alpha=alpha),
        )
        dataset = make_dataset(
            directory, global_batch_size=8, config=config, start_step=steps.start
        )
        return list(dataset.take(len(steps)).as_numpy_iterator())

    phases = ((1.0, 0), (0.5, 3), (0.0, 6))
    expected = [
        *batches(1.0, range(3)),
        *batches(0.5, range(3, 6)),
        *batches(0.0, range(6, 8)),
    ]
    for start in (0, 4):  # from the second one on, as resumed there
        tf.nest.map_structure(
            np.testing.assert_array_equal, batches(phases, range(start, 8)), expected[start:]
        )
    assert len({float(batch["weight"].min()) for batch in expected}) >= 3


@pytest.mark.parametrize("global_batch_size", [1, 5, 8, 32])
def test_an_epoch_holds_each_record_once(directory: Path, global_batch_size: int):
    dataset = make_dataset(directory, global_batch_size=global_batch_size, config=SMALL)
    steps = 32 // global_batch_size
    for epoch in range(2):
        ids = ids_of(dataset.skip(epoch * steps), steps)
        assert len(set(ids)) == len(ids) == steps * global_batch_size


@pytest.mark.parametrize("parts", [1, 2, 4, 8, 16])
def test_equal_parts_of_a_batch_are_fair(directory: Path, parts: int):
    """Whoever splits a batch: TensorFlow for its replicas, or an accumulation of gradients."""
    dataset = make_dataset(directory, global_batch_size=16, config=InputConfig(height=8, width=8))
    share = np.array([20, 9, 2, 1]) / 32 * 16 / parts
    for _, labels in dataset.take(6):
        for part in np.split(labels.numpy(), parts):
            assert np.abs(np.bincount(part, minlength=4) - share).max() < 1


def test_seed_fixes_the_order(directory: Path):
    orders = [
        ids_of(make_dataset(directory, global_batch_size=8, config=SMALL, seed=seed), 4)
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize(
    "make",
    [
        np.int32,
        tf.constant,
        tf.Variable,
        lambda value: tf.constant(value, tf.int64),
        keras.Variable,
    ],
    ids=["NumPy", "int32", "variable", "int64", "Keras"],
)
def test_the_start_may_be_a_tensor(directory: Path, make: Callable[[int], Any]):
    """Such as the optimizer's counter of steps."""
    plain, given = (
        make_dataset(directory, global_batch_size=8, config=SMALL, start_step=step)
        for step in (5, make(5))
    )
    assert ids_of(given, 1) == ids_of(plain, 1)


def test_an_iterator_can_be_checkpointed(directory: Path, tmp_path: Path):
    """Although the step alone says where a run stands."""
    dataset = make_dataset(directory, global_batch_size=8, config=SMALL)
    iterator = iter(dataset)
    for _ in range(5):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "checkpoint")
    restored = iter(dataset)
    tf.train.Checkpoint(iterator=restored).restore(path).assert_consumed()
    later = make_dataset(directory, global_batch_size=8, config=SMALL, start_step=5)
    for expected, _ in zip(later, range(6), strict=False):
        np.testing.assert_array_equal(next(restored)["id"], expected["id"])


def test_one_worker_of_the_data_service_makes_the_same_batches(directory: Path):
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
    dataset = make_dataset(directory, global_batch_size=8, config=SMALL)
    served = dataset.apply(
        service.distribute(processing_mode="parallel_epochs", service=dispatcher.target)
    )
    assert ids_of(served, 6) == ids_of(dataset, 6)
    worker.stop()
    dispatcher.stop()


@pytest.mark.parametrize("block_length", [1, 4])
@pytest.mark.parametrize(
    "make_strategy",
    [
        tf.distribute.get_strategy,
        lambda: tf.distribute.OneDeviceStrategy("CPU:0"),
        lambda: tf.distribute.MirroredStrategy(["CPU:0"]),
    ],
    ids=["default", "one_device", "mirrored"],
)
def test_datasets_tell_the_steps_of_an_epoch(
    directory: Path, make_strategy: Callable, block_length: int
):
    info = load_info(directory)
    config = InputConfig(height=32, width=32, reading=Reading(block_length=block_length))
    options = {"split": "train", "global_batch_size": 8, "config": config}
    expected = info.steps_per_epoch("train", 8, block_length=block_length)
    assert expected > 1
    dataset = make_distributed_dataset(make_strategy(), directory, **options)
    assert dataset.steps_per_epoch == expected
    assert make_dataset(directory, **options).steps_per_epoch == expected
