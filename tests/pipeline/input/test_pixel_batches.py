"""Batches of copied pixels: those of the general reader, with the same errors."""

import dataclasses
import gc
import shutil
import time
import weakref
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
from pipeline.input.index_dataset import InputShard
from pipeline.input.input_pipeline import InputPipeline
from pipeline.input.pixel_batches import why_parsed
from pipeline.input.python_calls import get_calls
from pipeline.records.info import load_info
from pipeline.records.read_failure import read_failure_in
from schemas.file_names import shard_name
from tests.support.dataset_factory import HEIGHT, WIDTH, exclude, read_index, write_dataset
from tests.support.dataset_files import exchange, flip
from tests.support.descriptors import descriptors

pytestmark = pytest.mark.slow

STORED = InputConfig(height=HEIGHT, width=WIDTH, dtype="uint8")


SINGLE = InputShard.of(tf.distribute.InputContext())
STRATEGIES = {
    "default": tf.distribute.get_strategy,
    "one device": lambda: tf.distribute.OneDeviceStrategy("CPU:0"),
    "mirrored": lambda: tf.distribute.MirroredStrategy(["CPU:0"]),
}


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


@pytest.fixture(scope="module")
def planned(pixels: Path) -> list[Any]:
    """The first batches of six."""
    return list(make_dataset(pixels, global_batch_size=6, config=STORED).take(60))


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
        assert f" record {index.id(3)} at byte {index.offset[3]} cannot be read: che" in sentence
    later = "an earlier batch could not be made, so this one might not be that of its step"
    assert any(later in error.message for error in errors)


def equal_lengths(lengths: list[int]) -> tuple[int, int]:
    """Returns the first two rows of records of equal length."""
    return next((lengths.index(n), row) for row, n in enumerate(lengths) if n in lengths[:row])


def exchange_records(directory: Path) -> None:
    for shard in (0, 2, 3):  # no record of which is left out
        index = read_index(directory, shard)
        rows = equal_lengths(index.length.tolist())
        exchange(directory / shard_name("train", shard), index, *rows)


def build_anew(directory: Path) -> None:
    """Builds a dataset whose records are as long, but whose layouts are others."""
    shutil.rmtree(directory)
    write_dataset(directory, raw=True, counts={"gamma": 20, "omega": 9, "alpha": 2, "delta": 1})


def delete_linked(directory: Path) -> None:
    """Deletes shards as `forget` does, where a backup has hard links of them."""
    for shard in range(4):
        path = directory / shard_name("train", shard)
        (directory.parent / path.name).hardlink_to(path)
        path.unlink()


@pytest.mark.parametrize("portable", [False, True], ids=["copied", "parsed"])
@pytest.mark.parametrize("steps_before", [0, 9])
@pytest.mark.parametrize(
    "change",
    [exchange_records, build_anew, delete_linked, lambda folder: folder.rename(f"{folder}-moved")],
    ids=["exchanged", "built anew", "deleted", "renamed"],
)
def test_a_batch_of_files_that_change_is_right_or_an_error(
    copy: Path,
    planned: list[Any],
    change: Callable[[Path], None],
    steps_before: int,
    portable: bool,
):
    """Right ones are those of the plan, but records of one layout may have been exchanged."""
    config = dataclasses.replace(STORED, reading=Reading(portable=portable))
    batches = iter(make_dataset(copy, global_batch_size=6, config=config))
    for _ in range(steps_before):
        next(batches)
    change(copy)
    pairs = {pair for batch in planned for pair in pairs_of(batch)}
    ended = False
    for images, labels in planned[steps_before:]:
        try:
            batch = next(batches)
        except tf.errors.OpError:
            ended = True
            break
        if change is exchange_records:
            assert pairs_of(batch) <= pairs
        else:
            np.testing.assert_array_equal(batch[0], images)
            np.testing.assert_array_equal(batch[1], labels)
    assert ended or change not in (build_anew, delete_linked)


def pairs_of(batch: tuple[tf.Tensor, tf.Tensor]) -> set[tuple[int, int]]:
    """Returns the shade of each image's box, by which records differ, with its label."""
    shades = tf.reduce_min(batch[0], axis=[1, 2, 3])
    return set(zip(shades.numpy().tolist(), batch[1].numpy().tolist(), strict=True))


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


def test_a_dataset_ends_with_its_iterators(pixels: Path):
    """Its reader holds files of the shards, and columns of the index."""
    ended = []
    for start_step in range(3):
        pipeline = InputPipeline.load(load_info(pixels), "train", 8, STORED)
        ended.append(weakref.ref(pipeline.pixel_reader))
        dataset = pipeline.training(SINGLE, seed=0, start_step=start_step)
        del pipeline
        for _ in dataset.take(5):
            assert descriptors(pixels) > 0
        del dataset
    # A reader ends when TensorFlow's last thread has left the iterator.
    for _ in range(100):
        gc.collect()
        if not any(reader() for reader in ended):
            break
        time.sleep(0.1)
    assert not any(reader() for reader in ended)
    assert descriptors(pixels) == 0


@pytest.mark.parametrize("make_strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_an_iterator_keeps_its_dataset(
    pixels: Path, make_strategy: Callable[[], tf.distribute.Strategy]
):
    """Keras begins another session meanwhile, and TensorFlow forgets its functions."""
    strategy = make_strategy()
    batches = iter(make_distributed_dataset(strategy, pixels, global_batch_size=8, config=STORED))
    expected = iter(make_dataset(pixels, global_batch_size=8, config=STORED))
    tf.keras.backend.clear_session()
    for step in range(30):
        if step in (0, 10):  # it takes long, as tests leave many objects behind
            gc.collect()
        images = strategy.experimental_local_results(next(batches)[0])
        np.testing.assert_array_equal(tf.concat(images, axis=0), next(expected)[0])


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
