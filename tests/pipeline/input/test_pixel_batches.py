"""Batches of copied pixels: those of the general reader, with the same errors."""

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.augmentation.photometric import Brightness
from pipeline.config import Balance, InputConfig, RandomCrop, Reading
from pipeline.dataset import make_dataset, make_distributed_dataset, make_evaluation_dataset
from pipeline.input import python_calls
from pipeline.input.input_pipeline import InputPipeline
from pipeline.input.pixel_batches import why_parsed
from pipeline.input.python_calls import get_calls
from pipeline.records.info import load_info
from pipeline.records.read_failure import read_failure_in
from schemas.file_names import shard_name
from tests.support.dataset_factory import HEIGHT, WIDTH, exclude, read_index, write_dataset
from tests.support.dataset_files import flip

pytestmark = pytest.mark.slow

STORED = InputConfig(height=HEIGHT, width=WIDTH, dtype="uint8")


@pytest.fixture(scope="module")
def pixels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 records of pixels in four shards, two of them left out; tests leave it as it was."""
    directory = write_dataset(tmp_path_factory.mktemp("pixels") / "receipts", raw=True)
    exclude(directory, {1: [0, 6]})
    return directory


@pytest.fixture
def copy(tmp_path: Path, pixels: Path) -> Path:
    """A copy that tests may damage."""
    return Path(shutil.copytree(pixels, tmp_path / "receipts"))


def both(make: Callable[..., Any], *arguments: Any, config: InputConfig, **options: Any) -> list:
    """Makes datasets with the reader that copies, and with the one that parses."""
    configs = [
        dataclasses.replace(config, reading=Reading(portable=portable))
        for portable in (False, True)
    ]
    return [make(*arguments, config=each, **options) for each in configs]


def first_error(batches: Iterator[Any]) -> tf.errors.InvalidArgumentError:
    """The first error, which comes behind some batches that were made ahead."""
    for _ in range(40):
        try:
            next(batches)
        except tf.errors.InvalidArgumentError as error:
            return error
    pytest.fail("there was no error")


def assert_equal(copied: tf.data.Dataset, parsed: tf.data.Dataset, batches: int) -> None:
    assert copied.element_spec == parsed.element_spec
    assert copied.cardinality() == parsed.cardinality()
    found = list(zip(copied.take(batches), parsed, strict=False))
    assert len(found) == batches
    for pair in found:
        tf.nest.map_structure(np.testing.assert_array_equal, *pair)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(dataclasses.replace(STORED, dtype="float32"), id="float32"),
        pytest.param(
            InputConfig(height=24, width=32, channels=1, dtype="uint8"), id="another size"
        ),
        pytest.param(
            InputConfig(height=HEIGHT, width=WIDTH, sample_weights=True, balance=Balance(alpha=0)),
            id="balanced",
        ),
        pytest.param(
            InputConfig(
                height=HEIGHT,
                width=WIDTH,
                features=("label", "row", "image", "layout_id", "weight", "seed", "step"),
                augmentations=(Brightness(),),
                views=2,
            ),
            id="features",
        ),
    ],
)
def test_batches_are_those_of_the_general_reader(pixels: Path, config: InputConfig):
    copied, parsed = both(make_dataset, pixels, config=config, global_batch_size=5, start_step=4)
    assert_equal(copied, parsed, batches=13)


def test_a_pipeline_makes_its_share_of_gray_pixels(tmp_path: Path):
    directory = write_dataset(tmp_path / "receipts", raw=True, gray=True)
    context = tf.distribute.InputContext(2, 1, 4)  # it feeds the last two of four replicas
    copied, parsed = both(
        make_dataset, directory, config=STORED, global_batch_size=8, input_context=context
    )
    assert_equal(copied, parsed, batches=6)


def test_an_evaluation_is_that_of_the_general_reader(pixels: Path):
    copied, parsed = both(
        make_evaluation_dataset,
        tf.distribute.get_strategy(),
        pixels,
        config=InputConfig(height=HEIGHT, width=WIDTH),
        split="train",
        global_batch_size=8,
    )
    assert copied.steps == parsed.steps == 4
    assert_equal(copied.dataset, parsed.dataset, batches=9)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, None),
        ({"features": ("image", "label", "layout_id", "weight", "step", "row", "seed")}, None),
        ({"reading": Reading(parallel_reads=3, verify="never")}, None),
        ({"crop": RandomCrop()}, "images are cropped"),
        ({"reading": Reading(block_length=2)}, "neighbors are read together"),
        ({"reading": Reading(buffer_bytes=4096)}, "the size of requests is given"),
        ({"reading": Reading(portable=True)}, "the dataset is portable"),
        ({"features": ("image", "id", "boxes")}, "the index has no feature id, boxes"),
        ({"features": ("image", "layout")}, "the index has no feature layout"),
    ],
)
def test_where_pixels_are_copied(pixels: Path, options: dict[str, Any], reason: str | None):
    config = dataclasses.replace(STORED, **options)
    assert why_parsed(load_info(pixels), config) == reason
    pipeline = InputPipeline.load(load_info(pixels), "train", 8, config)
    assert (pipeline.pixel_reader is None) == (reason is not None)


def test_where_they_are_not(pixels: Path, directory: Path):
    assert why_parsed(load_info(directory), STORED) == "images are stored as JPEG files"
    remote = dataclasses.replace(load_info(pixels), data_dir="s3://bucket/receipts")
    assert why_parsed(remote, STORED) == "the directory is not local"
    with tf.Graph().as_default():  # as the workers of ParameterServerStrategy get it
        assert why_parsed(load_info(pixels), STORED) == "the dataset is made in a graph"


@pytest.mark.parametrize(
    ("fault", "steps_before"), [("payload", 0), ("length", 0), ("cut off", 9), ("missing", 9)]
)
def test_after_a_record_that_cannot_be_read_no_batch_comes(
    copy: Path, fault: str, steps_before: int
):
    """At its first reading, or when each record has been read, in an epoch of 5 steps.

    If the file were mapped, the process would end by SIGBUS where it is cut off meanwhile.
    """
    shard, index = copy / shard_name("train", 2), read_index(copy, 2)
    batches = iter(make_dataset(copy, global_batch_size=6, config=STORED))
    for _ in range(steps_before):
        next(batches)
    if fault == "missing":
        shard.unlink()
    elif fault == "cut off":
        with shard.open("r+b") as file:
            file.truncate(int(index.offset[3]) + 100)
    else:
        flip(shard, int(index.offset[3]) + (1000 if fault == "payload" else 0))
    errors = []
    for _ in range(40):
        try:
            next(batches)
            assert not errors, "a batch came after an error"
        except tf.errors.InvalidArgumentError as error:
            errors.append(error)
    sentence = read_failure_in(errors[0])
    assert sentence is not None
    assert sentence.startswith(f"{shard}: record ")
    assert sentence.endswith("pipeline.train then goes on with --other-data")
    if fault in ("payload", "length"):
        assert f" record {index.id(3)} at byte {index.offset[3]} cannot be read; " in sentence
    later = "an earlier batch could not be made, so this one might not be that of its step"
    assert any(later in error.message for error in errors)


def test_an_iterator_can_be_checkpointed(pixels: Path, tmp_path: Path):
    dataset = make_dataset(pixels, global_batch_size=8, config=STORED)
    iterator = iter(dataset)
    for _ in range(5):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "checkpoint")
    restored = iter(dataset)
    tf.train.Checkpoint(iterator=restored).restore(path).assert_consumed()
    later = make_dataset(pixels, global_batch_size=8, config=STORED, start_step=5)
    np.testing.assert_array_equal(next(restored)[0], next(iter(later))[0])


def test_a_strategy_may_have_a_pipeline_for_each_replica(pixels: Path):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    options = tf.distribute.InputOptions(
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
        experimental_fetch_to_device=False,
    )
    datasets = both(
        make_distributed_dataset,
        strategy,
        pixels,
        config=STORED,
        global_batch_size=8,
        input_options=options,
    )
    for pair, _ in zip(zip(*datasets, strict=False), range(5), strict=False):
        local = [tf.nest.map_structure(strategy.experimental_local_results, each) for each in pair]
        tf.nest.map_structure(np.testing.assert_array_equal, *local)


def test_no_thread_enters_python_when_it_is_about_to_end(pixels: Path):
    """A change of the array must reach graphs that were made before it."""
    calls = get_calls()
    batches = iter(make_dataset(pixels, global_batch_size=8, config=STORED))
    next(batches)
    try:
        calls.close()
        assert python_calls._CLOSED in first_error(batches).message
    finally:
        calls._closed[:] = 0


def test_a_dataset_of_another_process_is_refused(pixels: Path, monkeypatch: pytest.MonkeyPatch):
    """TensorFlow calls a function by a number, which means another one elsewhere."""
    batches = iter(make_dataset(pixels, global_batch_size=8, config=STORED))
    next(batches)
    monkeypatch.setattr(get_calls(), "_process", 1)
    assert "Reading(portable=True)" in first_error(batches).message
