"""Batches of data services are those that the trainer would make, and none is lost silently."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.augmentation.geometric import Rotate
from pipeline.config import InputConfig
from pipeline.dataset import make_distributed_dataset
from pipeline.input import services
from pipeline.input.index_dataset import InputShard
from pipeline.input.input_pipeline import InputPipeline
from pipeline.input.services import check_services, is_lost_service, through_services
from pipeline.records.info import load_info
from schemas.file_names import shard_name
from tests.support.data_services import Service, data_services
from tests.support.dataset_factory import write_dataset
from tests.support.dataset_files import flip, offset_of

CONFIG = InputConfig(
    height=32,
    width=24,
    features=("id", "image", "boxes", "step", "row"),
    augmentations=(Rotate(),),
)
STRATEGY = tf.distribute.get_strategy()


@pytest.fixture(scope="module")
def running(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Service]]:
    with data_services(directory, tmp_path_factory.mktemp("services"), 2) as started:
        yield started


def batches(directory: Path, **options: Any) -> Iterator[Any]:
    return iter(
        make_distributed_dataset(
            STRATEGY, directory, global_batch_size=4, config=CONFIG, start_step=3, **options
        )
    )


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.slow
def test_the_batches_are_those_of_one_process(directory: Path, running: list[Service]):
    """Their order, too, for each replica, from any step on, over more than an epoch."""
    pipeline = InputPipeline.load(load_info(directory), "train", 12, CONFIG)

    def make(workers: int = 1, worker: int = 0) -> tf.data.Dataset:
        shard = InputShard(replicas=3, replica_range=range(1, 3), workers=workers, worker=worker)
        return pipeline.training(shard, seed=5, start_step=1)

    taken = through_services(
        [each.address for each in running], lambda number: make(2, number), batches=2
    )
    assert taken.element_spec == make().element_spec
    for found, expected in zip(taken.take(10), make(), strict=False):
        assert_equal(found, expected)


@pytest.mark.slow
def test_a_service_that_was_lost(directory: Path, tmp_path: Path):
    """It begins anew, and would give batches that came before: each is an error."""
    with data_services(directory, tmp_path, 1) as [service]:
        found = batches(directory, services=[service.address])
        assert_equal(next(found), next(batches(directory)))
        service.kill()
        service.start()
        with pytest.raises(tf.errors.NotFoundError) as raised:
            list(itertools.islice(found, 1000))  # some were fetched before
        assert is_lost_service(raised.value)
        with pytest.raises(tf.errors.OpError):
            next(found)


@pytest.mark.slow
def test_a_damaged_record_is_named(running: list[Service], tmp_path: Path):
    directory = write_dataset(tmp_path / "damaged")
    flip(directory / shard_name("train", 0), offset_of(directory, 3) + 60)
    found = batches(directory, services=[each.address for each in running])
    with pytest.raises(tf.errors.InvalidArgumentError, match="cannot be read; python -m"):
        list(itertools.islice(found, 9))  # an epoch
    for _ in range(8):  # those of the other service too
        with pytest.raises(tf.errors.InvalidArgumentError):
            next(found)


@pytest.mark.parametrize("address", ["5050", "host:", "host:port", "host:0", ":5050", "host:70000"])
def test_an_address_has_a_host_and_a_port(address: str):
    with pytest.raises(ValueError, match="is no HOST:PORT, such as"):
        check_services(STRATEGY, [address])


def test_an_address_comes_once():
    with pytest.raises(ValueError, match="each address can come once only"):
        check_services(STRATEGY, ["a:1", "b:1", "a:1"])


def test_nobody_listens(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(services, "_CONNECT_S", 0.1)
    sentence = "no answer within 0.1 s from the data service at 127.0.0.1:1 (Connection refused)"
    with pytest.raises(TimeoutError, match=re.escape(sentence)):
        batches(directory, services=["127.0.0.1:1"])
