"""Errors of the training dataset: its options, its directory, its records."""

import itertools
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.config import Balance, InputConfig, RandomCrop, Reading
from pipeline.dataset import make_dataset, make_distributed_dataset, make_evaluation_dataset
from pipeline.records.read_failure import read_failure_in
from schemas.file_names import shard_name
from tests.support.dataset_factory import read_index, write_dataset

pytestmark = pytest.mark.slow


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
            {"config": InputConfig(label="group")},
            None,
            "'group' is not a category of .*: choose one of layout, or name it in "
            "InputConfig.features, which gives its values",
            id="label without ids",
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
        pytest.param(
            {"global_batch_size": 10**8},
            None,
            r"a batch of 100,000,000 images of 256×256×3 float32 takes 78,643 GB, and two of them "
            r"don't fit into the [\d,]+ GB of this machine: choose a smaller global_batch_size",
            id="memory",
        ),
        pytest.param({"start_step": -1}, None, "start_step must be at least 0", id="start"),
        *(
            pytest.param(
                {"start_step": step},
                None,
                rf"start_step must be at most 1,099,511,627,776 \(2\*\*40\), got {step}",
                id=f"start {step}",
            )
            for step in ((1 << 40) + 1, 1 << 62, (1 << 63) - 1, 1 << 70)
        ),
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


def test_a_context_must_be_one(directory: Path):
    sentence = "input_context must be of type InputContext, such as InputContext(2, 0, 2), got 3"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make_dataset(directory, input_context=3)  # type: ignore[arg-type]


def test_the_highest_step_has_a_batch(directory: Path):
    config = InputConfig(height=8, width=8, features=("step",))
    dataset = make_dataset(directory, global_batch_size=10, start_step=1 << 40, config=config)
    assert next(iter(dataset))["step"].numpy().tolist() == [1 << 40] * 10


def test_a_dataset_that_was_built_anew_with_other_layouts(tmp_path: Path):
    """JPEG files that lie where those of the plan lay, with the same label ids of other layouts."""
    directory = write_dataset(tmp_path / "data", counts={"b": 8, "c": 8}, shards=8)
    config = InputConfig(height=8, width=8)
    batches = iter(make_dataset(directory, global_batch_size=4, config=config))
    next(batches)
    shutil.rmtree(directory)
    write_dataset(directory, counts={"a": 8, "b": 8}, shards=8)
    with pytest.raises(tf.errors.OpError) as raised:
        list(itertools.islice(batches, 40))  # some were made before
    sentence = read_failure_in(raised.value)
    assert sentence is not None
    # The second one if a batch was made while there was no dataset.
    assert re.search(
        "another dataset was built in its place|holds no finished dataset any", sentence
    )


@pytest.mark.parametrize("make", [make_distributed_dataset, make_evaluation_dataset])
def test_a_strategy_must_be_one(directory: Path, make: Callable[..., Any]):
    sentence = "must be a tf.distribute.Strategy, such as tf.distribute.get_strategy(), got None"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make(None, directory, split="train", global_batch_size=8)


def test_needs_a_finished_directory(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="holds no finished dataset"):
        make_distributed_dataset(tf.distribute.get_strategy(), tmp_path)


@pytest.mark.parametrize("crop", [None, RandomCrop()], ids=["whole", "crop"])
def test_after_an_error_no_batch_comes(tmp_path: Path, crop: RandomCrop | None):
    """Records that follow would no longer be those of their step and row."""
    directory = write_dataset(tmp_path / "receipts")
    shard = directory / shard_name("train", 1)
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
