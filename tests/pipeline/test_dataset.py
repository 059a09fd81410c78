"""The training dataset: elements, batches of several pipelines, and errors."""

import itertools
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf

from pipeline.augmentation.chain import augment
from pipeline.augmentation.corruption import Noise
from pipeline.augmentation.geometric import Rotate
from pipeline.config import Balance, InputConfig, RandomCrop, Reading
from pipeline.dataset import make_dataset, make_distributed_dataset, make_evaluation_dataset
from pipeline.records.info import load_info
from schemas.manifest import shard_name
from tests.support.dataset_factory import BOX, LAYOUTS, read_index, write_dataset

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FEATURES = ("image", "label", "boxes", "id")
SMALL = InputConfig(height=64, width=64, channels=1, features=FEATURES)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("dataset") / "receipts")


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


def test_an_augmentation_of_ones_own_may_branch(directory: Path):
    @tf.function
    def invert_large_batches(examples: dict, seeds: tf.Tensor) -> dict:
        if tf.size(seeds) > 4:
            examples = {**examples, "image": 1 - examples["image"]}
        return examples

    config = InputConfig(height=60, width=40, augmentations=(invert_large_batches,))
    for size, mean in ((4, 1.0), (8, 0.0)):
        images, _ = next(iter(make_dataset(directory, global_batch_size=size, config=config)))
        np.testing.assert_allclose(images[:, 0], mean)  # the first row of each image is white


@pytest.mark.parametrize(("pipelines", "start_step"), [(1, 7), (2, 0), (3, 7)])
def test_pipelines_make_the_same_global_batches(directory: Path, pipelines: int, start_step: int):
    """Also from any step on, augmented pixels included."""
    config = InputConfig(
        height=64,
        width=48,
        features=("id", "image", "boxes", "step", "row"),
        crop=RandomCrop(),
        augmentations=(Rotate(), Noise()),
        dtype="uint8",
    )

    def stream(pipelines: int, start_step: int) -> dict[tuple[int, int], tuple]:
        found = {}
        for number in range(pipelines):
            context = tf.distribute.InputContext(pipelines, number, pipelines)
            dataset = make_dataset(
                directory,
                global_batch_size=12,
                config=config,
                start_step=start_step,
                input_context=context,
            )
            for batch in dataset.take(9 - start_step):
                for each in zip(*(batch[name].numpy() for name in config.features), strict=True):
                    id_, image, boxes, step, row = each
                    found[int(step), int(row)] = (id_, image.tobytes(), boxes.tobytes())
        return found

    whole = {place: each for place, each in stream(1, 0).items() if place[0] >= start_step}
    assert len(whole) == 12 * (9 - start_step)
    assert stream(pipelines, start_step) == whole


def test_augmentation_on_the_device_gives_the_same(directory: Path):
    options = {
        "height": 64,
        "width": 48,
        "features": ("image", "boxes", "seed"),
        "augmentations": (Rotate(), Noise()),
        "dtype": "uint8",
    }
    host, device = (
        next(iter(make_dataset(directory, global_batch_size=8, config=config)))
        for config in (InputConfig(**options), InputConfig(**options, placement="device"))
    )
    augmented = tf.function(augment)(device, options["augmentations"], device["seed"])
    assert not np.array_equal(device["image"], host["image"])
    np.testing.assert_array_equal(augmented["image"], host["image"])
    np.testing.assert_array_equal(augmented["boxes"], host["boxes"])


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_replicas_get_their_share(directory: Path, replicas: int):
    """In a process of its own: logical devices must be set up before TensorFlow is used."""
    code = f"""
import tensorflow as tf
from pipeline.config import Balance, InputConfig, RandomCrop, Reading
from pipeline.dataset import make_distributed_dataset
cpu = tf.config.list_physical_devices("CPU")[0]
devices = [tf.config.LogicalDeviceConfiguration()] * {replicas}
tf.config.set_logical_device_configuration(cpu, devices)
strategy = tf.distribute.MirroredStrategy([f"CPU:{{n}}" for n in range({replicas})])
config = InputConfig(height=64, width=64, channels=1)
dataset = make_distributed_dataset(strategy, {str(directory)!r}, global_batch_size=8, config=config)
images, _ = next(iter(dataset))
print([tuple(image.shape) for image in strategy.experimental_local_results(images)])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == str([(8 // replicas, 64, 64, 1)] * replicas)


@pytest.mark.parametrize(
    ("options", "context", "sentence"),
    [
        pytest.param({"split": "test"}, None, "has no split 'test'", id="split"),
        pytest.param({"split": "validation"}, None, "is empty: choose another", id="empty split"),
        pytest.param(
            {"config": InputConfig(label="color")},
            None,
            "'color' is not a category of .*: choose one of layout, or build it with "
            "--label color:category",
            id="label",
        ),
        pytest.param(
            {"config": InputConfig(balance=Balance(by="shop"))},
            None,
            "'shop' is not a category",
            id="balance",
        ),
        pytest.param(
            {"config": InputConfig(features=("image", "total"))},
            None,
            "has no feature 'total': choose among image, label, boxes, text, id, weight, step, "
            "row, seed, group, layout, layout_id",
            id="feature",
        ),
        pytest.param(
            {"global_batch_size": 9},
            (1, 0, 2),
            "global_batch_size 9 can't be divided by 2 replicas: choose a multiple of 2",
            id="batch size",
        ),
        pytest.param(
            {"config": InputConfig(reading=Reading(block_length=4))},
            (2, 0, 2),
            "global_batch_size 10 can't be divided by 2 replicas in blocks of 4 records: choose a "
            "multiple of 8",
            id="batch size in blocks",
        ),
        pytest.param(
            {"config": InputConfig(reading=Reading(block_length=10))},
            None,
            "block_length 10 exceeds the 8 records of the smallest shard of split 'train' in .*: "
            "choose less, or build fewer shards",
            id="run length",
        ),
        pytest.param(
            {"global_batch_size": 0}, None, "0 can't be divided by 1 replicas", id="no batch"
        ),
        pytest.param({"start_step": -1}, None, "start_step must be at least 0", id="start"),
        pytest.param(
            {"start_step": 1.5},
            None,
            "start_step must be an integer, such as 0, got 1.5",
            id="start of another type",
        ),
        pytest.param(
            {"seed": None}, None, "seed must be an integer, such as 0, got None", id="no seed"
        ),
        pytest.param(
            {"global_batch_size": 10.0},
            None,
            "global_batch_size must be an integer, such as 256, got 10.0",
            id="batch size of another type",
        ),
        pytest.param(
            {"config": {"height": 32}},
            None,
            r"config must be of type InputConfig, such as InputConfig\(height=256\), got {'height'",
            id="config of another type",
        ),
    ],
)
def test_errors(directory: Path, options: dict, context: tuple | None, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        make_dataset(
            directory,
            **{"global_batch_size": 10, **options},
            input_context=context and tf.distribute.InputContext(*context),
        )


@pytest.mark.parametrize("make", [make_distributed_dataset, make_evaluation_dataset])
def test_a_strategy_must_be_one(directory: Path, make: Callable[..., Any]):
    sentence = "must be a tf.distribute.Strategy, such as tf.distribute.get_strategy(), got None"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make(None, directory, split="train", global_batch_size=8)


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


def test_needs_a_finished_directory(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="holds no finished dataset"):
        make_distributed_dataset(tf.distribute.get_strategy(), tmp_path)


@pytest.mark.parametrize("crop", [None, RandomCrop()], ids=["whole", "crop"])
def test_after_an_error_no_batch_comes(tmp_path: Path, crop: RandomCrop | None):
    """Records that follow would no longer be those of their step and row."""
    directory = write_dataset(tmp_path / "receipts")
    shard = directory / shard_name("train", 1, 4)
    data = bytearray(shard.read_bytes())
    data[read_index(directory, 1).offset[3] + 60] ^= 1
    shard.write_bytes(data)
    config = InputConfig(height=8, width=8, crop=crop)
    batches = iter(make_dataset(directory, global_batch_size=4, config=config))
    with pytest.raises(tf.errors.InvalidArgumentError, match="cannot be read"):
        list(itertools.islice(batches, 8))  # an epoch, which holds the damaged record
    sentence = (
        "an earlier batch could not be made, so this one might not be that of its step: make the "
        "dataset again, with start_step, once the earlier error is dealt with"
    )
    later = []
    for _ in range(24):
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            next(batches)
        later.append(sentence in str(raised.value))
    assert sum(later) > 12, "others name the same record, which comes once an epoch"


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
