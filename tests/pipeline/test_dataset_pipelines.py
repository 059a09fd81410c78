"""Input pipelines and replicas share each global batch, augmented pixels included."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.augmentation.chain import augment
from pipeline.augmentation.corruption import Noise
from pipeline.augmentation.geometric import Rotate
from pipeline.config import InputConfig, RandomCrop
from pipeline.dataset import make_dataset
from tests.support.processes import run_python

pytestmark = pytest.mark.slow


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
    off = augmented["image"].numpy().astype(int) - host["image"].numpy()
    assert np.abs(off).max() <= 3  # on the host, resampled images are rounded before the noise
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
    assert run_python("-c", code).stdout.strip() == str([(8 // replicas, 64, 64, 1)] * replicas)
