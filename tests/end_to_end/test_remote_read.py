"""Training data from object stores, on servers of their protocols."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("apache_beam")

from beam_jobs.storage import files
from schemas.file_names import shard_name
from tests.support.dataset_factory import read_index, write_dataset
from tests.support.processes import ROOT
from tests.support.receipts import contents
from tests.support.remote_reader import RUN_LENGTHS, read_batches
from tests.support.stores import STORE_NAMES, TestStore, started

COUNTS = {"alpha": 40, "beta": 16, "gamma": 7, "omega": 1}
DAMAGED_SHARD, DAMAGED_POSITION = 2, 8
MISSING_SHARD = 1


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 records in four shards."""
    return write_dataset(tmp_path_factory.mktemp("remote") / "receipts", counts=COUNTS)


@pytest.fixture(scope="module", params=STORE_NAMES)
def store(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[TestStore]:
    if request.param != "gs":
        pytest.importorskip("tensorflow_io")
    with started(request.param, tmp_path_factory.mktemp("server")) as store:
        yield store


def read(store: TestStore, *names: str) -> tuple[int, dict[str, Any]]:
    """Exit status of a process that reads directories of a store, and what it says of each."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.remote_reader"]
        + [f"{store.tensorflow_root}/{name}" for name in names],
        cwd=ROOT,
        env={**os.environ, **store.environment, "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(names), done.stderr[-4000:]
    return done.returncode, dict(zip(names, lines, strict=True))


@pytest.fixture(scope="module")
def outcome(store: TestStore, directory: Path) -> tuple[int, dict[str, Any]]:
    """Results of one process that reads an undamaged directory and three others."""
    sound = contents(directory)
    damaged, missing = shard_name("train", DAMAGED_SHARD), shard_name("train", MISSING_SHARD)
    payload = bytearray(sound[damaged])
    payload[read_index(directory, DAMAGED_SHARD).offset[DAMAGED_POSITION] + 60] ^= 0x10
    directories = {
        "sound": sound,
        "damaged": {**sound, damaged: bytes(payload)},
        "missing": {name: data for name, data in sound.items() if name != missing},
        "none": {},
    }
    for name, group in directories.items():
        for file, data in group.items():
            files.write(files.join(store.root, name, file), data)
    return read(store, *directories)


def test_gives_the_batches_that_a_local_directory_gives(
    outcome: tuple[int, dict[str, Any]], directory: Path
):
    """Ids and pixels, of training and of evaluation."""
    batches = outcome[1]["sound"]["batches"]
    assert batches == read_batches(str(directory))
    assert [len(each) for each in batches.values()] == [10] * len(RUN_LENGTHS) + [3]
    ids = [each for batch in batches["evaluation"] for each in batch["id"]]
    assert len(set(ids[:64])) == 64


def test_errors_name_the_record(
    outcome: tuple[int, dict[str, Any]], store: TestStore, directory: Path
):
    index = read_index(directory, DAMAGED_SHARD)
    path = f"{store.tensorflow_root}/damaged/{shard_name('train', DAMAGED_SHARD)}"
    assert (
        f"{path}: record {index.id(DAMAGED_POSITION)} at byte "
        f"{index.offset[DAMAGED_POSITION]} cannot be read; python -m beam_jobs.verify tells what "
        "is wrong with it, and with --exclude leaves out all that is damaged, records of a missing "
        "shard too; pipeline.train then goes on with --other-data"
    ) in outcome[1]["damaged"]["error"]

    index = read_index(directory, MISSING_SHARD)
    path = f"{store.tensorflow_root}/missing/{shard_name('train', MISSING_SHARD)}"
    sentences = [
        f"{path}: record {index.id(each)} at byte {index.offset[each]} cannot be read"
        for each in range(len(index))
    ]
    assert any(each in outcome[1]["missing"]["error"] for each in sentences)


def test_a_directory_that_is_not_there(outcome: tuple[int, dict[str, Any]], store: TestStore):
    assert outcome[1]["none"]["error"] == (
        f"{store.tensorflow_root}/none holds no finished dataset (no file COMPLETED): check the "
        "path, or build it with python -m beam_jobs.build"
    )


def test_the_process_ends_with_its_own_status(outcome: tuple[int, dict[str, Any]]):
    """Not with SIGABRT, as tensorflow-io would have it."""
    assert outcome[0] == 3


def test_a_store_that_refuses_is_not_an_empty_one(
    outcome: tuple[int, dict[str, Any]], store: TestStore
):
    """Wrong credentials are the reason; `tf.io.gfile.exists` would only say no."""
    if not store.root.startswith("s3://"):
        pytest.skip("only moto can be told to refuse")
    allow_unchecked(store, 0)
    try:
        status, lines = read(store, "sound")
    finally:
        allow_unchecked(store, math.inf)
    assert status == 1
    assert lines["sound"]["error"] == (
        f"{store.tensorflow_root}/sound holds no finished dataset (access to COMPLETED is denied): "
        "check the path, or build it with python -m beam_jobs.build"
    )


def allow_unchecked(store: TestStore, requests: float) -> None:
    """Tells moto how many requests it is to serve before it checks who they come from."""
    url = f"{store.environment['S3_ENDPOINT']}/moto-api/reset-auth"
    headers = {"Content-Type": "text/plain"}
    urlopen(Request(url, data=str(requests).encode(), headers=headers)).close()
