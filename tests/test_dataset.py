"""The training dataset: elements, shards per pipeline, strategies and errors."""

import collections
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.dataset import make_dataset, make_distributed_dataset
from tests.handmade import BOX, LAYOUTS, write_dataset

ROOT = Path(__file__).parents[1]
SMALL = InputConfig(height=64, width=64, channels=1, output="features", shuffle_buffer=8)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("dataset") / "receipts")


def ids_of(dataset: tf.data.Dataset, batches: int) -> list[str]:
    return [
        each.decode() for batch in dataset.take(batches) for each in batch["id"].numpy().tolist()
    ]


@pytest.mark.parametrize("raw", [False, True], ids=["jpeg", "raw"])
@pytest.mark.parametrize("grey", [False, True], ids=["stored RGB", "stored grey"])
@pytest.mark.parametrize("channels", [1, 3])
def test_image_is_fitted_and_boxes_follow(tmp_path: Path, raw: bool, grey: bool, channels: int):
    directory = write_dataset(tmp_path / "receipts", raw=raw, grey=grey)
    config = InputConfig(height=96, width=96, channels=channels, output="features", max_boxes=3)
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


def test_every_record_comes_before_one_is_repeated_often(directory: Path):
    counts = collections.Counter(
        ids_of(make_dataset(directory, global_batch_size=8, config=SMALL), 12)
    )
    assert len(counts) == 32
    assert max(counts.values()) <= 4


def test_seed_fixes_the_order(directory: Path):
    orders = [
        ids_of(make_dataset(directory, global_batch_size=8, config=SMALL, seed=seed), 4)
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("pipelines", [1, 2, 3, 4])
def test_pipelines_are_disjoint_and_together_complete(directory: Path, pipelines: int):
    seen = [
        set(
            ids_of(
                make_dataset(
                    directory,
                    global_batch_size=12,
                    config=SMALL,
                    input_context=tf.distribute.InputContext(pipelines, number, pipelines),
                ),
                80 // (12 // pipelines),
            )
        )
        for number in range(pipelines)
    ]
    assert len(set().union(*seen)) == sum(len(each) for each in seen) == 32


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_replicas_get_their_share(directory: Path, replicas: int):
    """In a process of its own: logical devices must be set up before TensorFlow is used."""
    code = f"""
import tensorflow as tf
from pipeline.config import InputConfig
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
            {"config": InputConfig(label="colour")},
            None,
            "label 'colour' is no category of .*: choose one of layout",
            id="label",
        ),
        pytest.param(
            {"global_batch_size": 9},
            (1, 0, 2),
            "global_batch_size 9 can't be divided by 2 replicas: choose a multiple of 2",
            id="batch size",
        ),
        pytest.param(
            {},
            (5, 0, 5),
            "has 4 shards for 5 input pipelines: build it with --shards-multiple-of 5",
            id="too few shards",
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


def test_needs_a_finished_directory(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="holds no finished dataset"):
        make_distributed_dataset(tf.distribute.get_strategy(), tmp_path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"height": 0}, "height must be at least 1, got 0"),
        ({"channels": 2}, r"channels must be 1 \(greyscale\) or 3 \(RGB\), got 2"),
        ({"output": "list"}, "output must be 'tuple' or 'features', got 'list'"),
        ({"shuffle_buffer": 0}, "shuffle_buffer must be at least 1, got 0"),
    ],
)
def test_config_is_checked(options: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        InputConfig(**options)
