"""Single records of an input pipeline beside its batches."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.config import InputConfig, RandomCrop
from pipeline.dataset import make_evaluation_dataset
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
