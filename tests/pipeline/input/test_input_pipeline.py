"""Single records of an input pipeline beside its batches."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.augmentation.chain import augment_views
from pipeline.augmentation.geometric import Rotate
from pipeline.augmentation.photometric import Brightness
from pipeline.config import InputConfig, RandomCrop
from pipeline.dataset import make_dataset, make_evaluation_dataset
from pipeline.input.input_pipeline import InputPipeline
from pipeline.records.info import load_info
from tests.support.dataset_factory import write_dataset


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("count", [3, 50])
def test_first_records_are_those_of_an_evaluation(
    tmp_path: Path, count: int, raw: bool, dtype: str
):
    directory = write_dataset(tmp_path / "receipts", raw=raw)
    config = InputConfig(
        height=24, width=32, dtype=dtype, features=("image", "label", "boxes", "text", "id", "row")
    )
    pipeline = InputPipeline.load(load_info(directory), "train", 8, config, evaluation=True)
    records = pipeline.first_records(count)
    dataset, steps = make_evaluation_dataset(
        tf.distribute.get_strategy(), directory, split="train", global_batch_size=8, config=config
    )
    batches = [batch for _, batch in zip(range(steps), dataset, strict=False)]
    assert sorted(records) == ["boxes", "id", "image", "label", "text"]
    for name, values in records.items():
        whole = np.concatenate([batch[name].numpy() for batch in batches])
        np.testing.assert_array_equal(values, whole[: min(count, 32)])


def test_records_are_read_by_their_numbers(tmp_path: Path):
    info = load_info(write_dataset(tmp_path / "receipts"))
    config = InputConfig(
        height=24, width=32, features=("image", "label", "id"), crop=RandomCrop(min_side=0.3)
    )
    pipeline = InputPipeline.load(info, "train", 8, config)
    table = pipeline.table
    numbers = table.first_records[::-1]
    records = pipeline.read_records(numbers)
    assert records["label"].tolist() == table.categories[::-1].tolist()
    whole = InputPipeline.load(info, "train", 8, config, evaluation=True).first_records(99)
    places = [whole["id"].tolist().index(one) for one in records["id"].tolist()]
    # Uncropped: as in an evaluation.
    np.testing.assert_array_equal(records["image"], whole["image"][places])


VIEWS = InputConfig(
    height=24,
    width=16,
    features=("image", "boxes", "seed"),
    augmentations=(Rotate(), Brightness()),
    views=2,
)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_views_are_the_same_on_the_host_and_on_the_device(directory: Path, dtype: str):
    config = dataclasses.replace(VIEWS, dtype=dtype)
    on_device = dataclasses.replace(config, placement="device")
    made, still = (
        next(iter(make_dataset(directory, global_batch_size=4, config=each, start_step=7)))
        for each in (config, on_device)
    )
    assert made["image"].shape == (4, 2, 24, 16, 3)
    assert made["boxes"].shape == (4, 2, 256, 4)
    assert still["image"].shape == (4, 24, 16, 3)
    views = augment_views(still, config.augmentations, still["seed"], 2)
    # On the host, resampled images are rounded.
    one_level = 1 if dtype == "uint8" else 1 / 255
    image = tf.cast(views.pop("image"), tf.float32)
    assert np.abs(tf.cast(made["image"], tf.float32) - image).max() <= 3 * one_level
    for name, values in views.items():
        np.testing.assert_array_equal(made[name], values)


@pytest.mark.parametrize("placement", ["host", "device"])
def test_an_evaluation_has_views_which_are_always_the_same(directory: Path, placement: str):
    config = dataclasses.replace(VIEWS, placement=placement)
    first, again = (
        next(
            iter(
                make_evaluation_dataset(
                    tf.distribute.get_strategy(),
                    directory,
                    split="train",
                    global_batch_size=4,
                    config=config,
                ).dataset
            )
        )
        for _ in range(2)
    )
    assert first["image"].shape == (4, 2, 24, 16, 3)
    np.testing.assert_array_equal(first["image"], again["image"])
    assert not np.array_equal(*tf.unstack(first["image"], axis=1))
    pipeline = InputPipeline.load(load_info(directory), "train", 4, config, evaluation=True)
    assert pipeline.first_records(4)["image"].shape == (4, 24, 16, 3)
