"""Batches of pixels in memory: those of the general reader, also while files change."""

import dataclasses
import gc
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.augmentation.photometric import Brightness
from pipeline.config import Balance, InputConfig, RandomCrop, Reading
from pipeline.dataset import make_dataset, make_distributed_dataset, make_evaluation_dataset
from pipeline.input.input_pipeline import InputPipeline
from pipeline.input.pixel_batches import why_parsed
from pipeline.records.info import load_info
from pipeline.records.stored_shards import CHANGED
from schemas.file_names import COMPLETED, shard_name
from schemas.versions import Versions
from tests.support.dataset_factory import HEIGHT, WIDTH, exclude, read_index, write_dataset
from tests.support.dataset_files import flip, next_tick
from tests.support.descriptors import descriptors, maps

pytestmark = pytest.mark.slow

STORED = InputConfig(height=HEIGHT, width=WIDTH, dtype="uint8")

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
    """Makes datasets of pixels in memory, and of records that are parsed."""
    configs = [
        dataclasses.replace(config, reading=Reading(portable=portable))
        for portable in (False, True)
    ]
    return [make(*arguments, config=each, **options) for each in configs]


def assert_equal(mapped: tf.data.Dataset, parsed: tf.data.Dataset, batches: int) -> None:
    assert mapped.element_spec == parsed.element_spec
    assert mapped.cardinality() == parsed.cardinality()
    found = list(zip(mapped.take(batches), parsed, strict=False))
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
    mapped, parsed = both(make_dataset, pixels, config=config, global_batch_size=5, start_step=4)
    assert_equal(mapped, parsed, batches=13)


def test_a_pipeline_makes_its_share_of_gray_pixels(tmp_path: Path):
    directory = write_dataset(tmp_path / "receipts", raw=True, gray=True)
    context = tf.distribute.InputContext(2, 1, 4)  # it feeds the last two of four replicas
    mapped, parsed = both(
        make_dataset, directory, config=STORED, global_batch_size=8, input_context=context
    )
    assert_equal(mapped, parsed, batches=6)


@pytest.mark.parametrize("size", [(64, 48), (50, 30)], ids=["aligned", "of another size"])
def test_a_batch_is_a_copy(tmp_path: Path, size: tuple[int, int]):
    """Also one of a single record, of which a stack needs no copy."""
    directory = write_dataset(tmp_path / "receipts", raw=True, sizes=[size])
    config = InputConfig(height=size[0], width=size[1], dtype="uint8")
    [(images, _)] = make_dataset(directory, global_batch_size=1, config=config).take(1)
    kept = images.numpy().copy()
    for shard in range(4):
        path = directory / shard_name("train", shard)
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
    np.testing.assert_array_equal(images, kept)
    assert kept.any()


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("gray", [False, True])
def test_slices_that_share_memory_are_those_of_the_general_reader(
    tmp_path: Path, gray: bool, dtype: str
):
    """A multiple of 64 bytes: TensorFlow does not copy such a slice."""
    directory = write_dataset(tmp_path / "receipts", raw=True, gray=gray, sizes=[(64, 48)])
    exclude(directory, {1: [0, 6]})
    config = InputConfig(height=64, width=48, channels=1 if gray else 3, dtype=dtype)
    mapped, parsed = both(make_dataset, directory, config=config, global_batch_size=5)
    assert_equal(mapped, parsed, batches=13)


def test_an_evaluation_is_that_of_the_general_reader(pixels: Path):
    mapped, parsed = both(
        make_evaluation_dataset,
        tf.distribute.get_strategy(),
        pixels,
        config=InputConfig(height=HEIGHT, width=WIDTH),
        split="train",
        global_batch_size=8,
    )
    assert mapped.steps == parsed.steps == 4
    assert_equal(mapped.dataset, parsed.dataset, batches=9)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, None),
        ({"features": ("image", "label", "layout_id", "weight", "step", "row", "seed")}, None),
        ({"reading": Reading(parallel_reads=3, verify=False)}, None),
        ({"crop": RandomCrop()}, "images are cropped"),
        ({"reading": Reading(block_length=2)}, "neighbors are read together"),
        ({"reading": Reading(buffer_bytes=4096)}, "the size of requests is given"),
        ({"reading": Reading(portable=True)}, "the dataset is portable"),
        ({"features": ("image", "id", "boxes")}, "the index has no feature id, boxes"),
        ({"features": ("image", "layout")}, "the index has no feature layout"),
    ],
)
def test_where_pixels_come_from_memory(pixels: Path, options: dict[str, Any], reason: str | None):
    config = dataclasses.replace(STORED, **options)
    assert why_parsed(load_info(pixels), config) == reason
    pipeline = InputPipeline.load(load_info(pixels), "train", 8, config)
    assert (pipeline.pixels is None) == (reason is not None)


def test_where_they_do_not(pixels: Path, directory: Path, tmp_path: Path):
    assert why_parsed(load_info(directory), STORED) == "images are stored as JPEG files"
    remote = dataclasses.replace(load_info(pixels), data_dir="s3://bucket/receipts")
    assert why_parsed(remote, STORED) == "the directory is not local"
    older = write_dataset(tmp_path / "older", raw=True, aligned=False)
    assert why_parsed(load_info(older), STORED) == (
        "an older version built it: run python -m beam_jobs.compact"
    )
    with tf.Graph().as_default():  # as the workers of ParameterServerStrategy get it
        assert why_parsed(load_info(pixels), STORED) == "the dataset is made in a graph"


def test_datasets_of_older_builds_are_read(tmp_path: Path, pixels: Path):
    older = write_dataset(tmp_path / "older", raw=True, aligned=False)
    exclude(older, {1: [0, 6]})
    evaluated = [
        make_evaluation_dataset(
            tf.distribute.get_strategy(), each, config=STORED, split="train", global_batch_size=8
        )
        for each in (pixels, older)
    ]
    assert_equal(*(each.dataset for each in evaluated), batches=4)


def build_anew(directory: Path) -> None:
    """Builds a dataset whose records are as long, but whose layouts are others."""
    shutil.rmtree(directory)
    write_dataset(directory, raw=True, counts={"gamma": 20, "omega": 9, "alpha": 2, "delta": 1})


def end_version(directory: Path) -> None:
    """Deletes shards as `forget` does, where a backup has hard links of them."""
    for shard in range(4):
        path = directory / shard_name("train", shard)
        (directory.parent / path.name).hardlink_to(path)
        path.unlink()
    ended = Versions.first(b"").adding(2, b"another").ending([1])
    (directory / COMPLETED).write_bytes(ended.to_bytes())


@pytest.mark.parametrize("portable", [False, True], ids=["mapped", "parsed"])
@pytest.mark.parametrize("steps_before", [0, 9])
@pytest.mark.parametrize(
    "change",
    [build_anew, end_version, lambda folder: folder.rename(f"{folder}-moved")],
    ids=["built anew", "forgotten", "renamed"],
)
def test_a_version_that_is_gone_is_an_error(
    copy: Path,
    planned: list[Any],
    change: Callable[[Path], None],
    steps_before: int,
    portable: bool,
):
    config = dataclasses.replace(STORED, reading=Reading(portable=portable))
    batches = iter(make_dataset(copy, global_batch_size=6, config=config))
    for _ in range(steps_before):
        next(batches)
    change(copy)
    for images, labels in planned[steps_before:]:
        try:
            batch = next(batches)
        except tf.errors.OpError:
            break
        np.testing.assert_array_equal(batch[0], images)
        np.testing.assert_array_equal(batch[1], labels)
    else:
        pytest.fail("there was no error")
    for _ in range(20):
        with pytest.raises(tf.errors.OpError):
            next(batches)


def delete(path: Path) -> None:
    path.unlink()


def replace_by_another(path: Path) -> None:
    shutil.copy(path, path.parent / "other")
    flip(path.parent / "other", 1000)
    (path.parent / "other").replace(path)


@pytest.mark.parametrize("change", [delete, replace_by_another])
def test_a_shard_in_memory_outlives_its_file(
    copy: Path, planned: list[Any], change: Callable[[Path], None]
):
    """It is an error when the dataset is made again."""
    batches = iter(make_dataset(copy, global_batch_size=6, config=STORED))
    change(copy / shard_name("train", 2))
    for images, labels in planned:
        batch = next(batches)
        np.testing.assert_array_equal(batch[0], images)
        np.testing.assert_array_equal(batch[1], labels)
    with pytest.raises(ValueError, match=r"00002.tfrecord cannot be read: "):
        make_dataset(copy, global_batch_size=6, config=STORED)


def test_a_shard_that_is_changed_in_place_is_an_error_when_a_dataset_is_made(copy: Path):
    """Nothing of tillroll does that."""
    shard = copy / shard_name("train", 2)
    make_dataset(copy, global_batch_size=6, config=STORED)
    next_tick()
    flip(shard, int(read_index(copy, 2).offset[3]) + 1000)
    with pytest.raises(ValueError, match=f"^{shard} cannot be read: {CHANGED}; "):
        make_dataset(copy, global_batch_size=6, config=STORED)


def test_a_shard_that_is_cut_off_in_memory_ends_the_process(copy: Path):
    """The kernel does that, by SIGBUS; the error of any later dataset says what is wrong."""
    program = (
        "import os, sys\n"
        "from pipeline.config import InputConfig\n"
        "from pipeline.dataset import make_dataset\n"
        f"config = InputConfig(height={HEIGHT}, width={WIDTH}, dtype='uint8')\n"
        "batches = iter(make_dataset(sys.argv[1], global_batch_size=6, config=config))\n"
        "os.truncate(sys.argv[2], 100)\n"
        "for _ in range(40): next(batches)\n"
    )
    shard = copy / shard_name("train", 2)
    ended = subprocess.run([sys.executable, "-c", program, copy, shard], capture_output=True)
    assert ended.returncode == -signal.SIGBUS
    with pytest.raises(ValueError, match="cannot be read: it has 100 bytes, the manifest says"):
        make_dataset(copy, global_batch_size=6, config=STORED)


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
    """Then its memory is unmapped; its files are closed at once."""
    for start_step in range(3):
        dataset = make_dataset(pixels, global_batch_size=8, config=STORED, start_step=start_step)
        for _ in dataset.take(5):
            assert maps(pixels) > 0
        del dataset
    for _ in range(97):
        InputPipeline.load(load_info(pixels), "train", 8, STORED)
    assert descriptors(pixels) == 0
    # The last ones end when TensorFlow's last thread has left the iterator.
    for _ in range(100):
        gc.collect()
        if not maps(pixels):
            break
        time.sleep(0.1)
    assert maps(pixels) == 0


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


def test_a_dataset_is_made_in_a_function(pixels: Path, planned: list[Any]):
    """TensorFlow parses the records then, as the graph might run elsewhere."""

    @tf.function
    def first_images() -> tf.Tensor:
        assert InputPipeline.load(load_info(pixels), "train", 6, STORED).pixels is None
        dataset = make_dataset(pixels, global_batch_size=6, config=STORED)
        return next(iter(dataset.take(1)))[0]

    np.testing.assert_array_equal(first_images(), planned[0][0])
