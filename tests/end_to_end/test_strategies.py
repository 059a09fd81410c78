"""Every distribution strategy sees the same batches; evaluation sees each record once."""

import collections
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.dataset import make_dataset, make_distributed_dataset, make_evaluation_dataset
from pipeline.records.info import load_info
from pipeline.sampling.batch_order import replica_rows
from pipeline.sampling.plan import plan_seed
from tests.support import keras_worker
from tests.support.dataset_factory import write_dataset
from tests.support.processes import processes, single, wait_until
from tests.support.strategy_worker import (
    EVALUATION,
    EVALUATIONS,
    PARAMETER_SERVER,
    STRATEGIES,
    TRAINING,
    rows,
)

COUNTS = {"alpha": 21, "beta": 10, "gamma": 4, "omega": 1}
RECORDS = sum(COUNTS.values())
STEPS_PER_EPOCH = RECORDS // TRAINING["global_batch_size"]
STEPS = 2 * STEPS_PER_EPOCH
LOCAL = [name for name in STRATEGIES if name != "multi-worker"]

Stream = dict[tuple[int, int], tuple[str, str, float]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("dataset") / "receipts", counts=COUNTS, shards=3)


def stream(examples: Iterable[dict[str, Any]]) -> Stream:
    """Maps each row of each step to id, digest of the pixels, weight. No row comes twice."""
    found: Stream = {}
    for each in examples:
        place = each["step"], each["row"]
        assert place not in found, f"row {place} came twice"
        found[place] = each["id"], each["digest"], each["weight"]
    assert found
    return found


def training_stream(directory: Path, *, steps: int) -> Stream:
    """Reads the batches that one pipeline of one process makes."""
    dataset = make_dataset(directory, **TRAINING).take(steps)
    return stream(row for batch in dataset for row in rows(batch))


def evaluation_stream(directory: Path) -> Stream:
    strategy = tf.distribute.get_strategy()
    dataset, steps = make_evaluation_dataset(strategy, directory, **EVALUATION)
    return stream(row for batch in dataset.take(steps) for row in rows(batch))


def printed(lines: Iterable[dict], strategy: str, kind: str) -> Stream:
    return stream(
        row
        for line in lines
        if (line["strategy"], line["kind"]) == (strategy, kind)
        for row in line["rows"]
    )


def test_strategies_of_one_process(directory: Path, tmp_path: Path):
    command = ("tests.support.strategy_worker", str(directory), *LOCAL, f"--steps={STEPS}")
    lines = single(tmp_path / "process", *command)
    training, evaluation = training_stream(directory, steps=STEPS), evaluation_stream(directory)
    for name in LOCAL:
        assert printed(lines, name, "training") == training, name
        for number in range(EVALUATIONS):
            assert printed(lines, name, f"evaluation {number}") == evaluation, name


@pytest.mark.parametrize("workers", [2, 3])
def test_multi_worker_mirrored_strategy(directory: Path, tmp_path: Path, workers: int):
    command = ("tests.support.strategy_worker", str(directory), "multi-worker", f"--steps={STEPS}")
    with processes(tmp_path / "cluster", {"worker": [command] * workers}) as started:
        wait_until(lambda: all(each.has_ended() for each in started), started)
        lines = [line for each in started for line in each.lines()]
        numbers = {len(each.lines()) for each in started}
    evaluation = evaluation_stream(directory)
    assert printed(lines, "multi-worker", "training") == training_stream(directory, steps=STEPS)
    for number in range(EVALUATIONS):
        assert printed(lines, "multi-worker", f"evaluation {number}") == evaluation
    evaluation_steps = math.ceil(RECORDS / EVALUATION["global_batch_size"])
    assert numbers == {STEPS + EVALUATIONS * evaluation_steps}


def test_parameter_server_strategy(directory: Path, tmp_path: Path):
    """Workers make whole global batches, at their own speed."""
    command = ("tests.support.strategy_worker", str(directory))
    commands = {
        "chief": [(*command, PARAMETER_SERVER, f"--steps={STEPS}")],
        "worker": [command] * 2,
        "ps": [command],
    }
    with processes(tmp_path / "cluster", commands) as started:
        wait_until(started[0].has_ended, started)
        lines = started[0].lines()
    seen = printed(lines, PARAMETER_SERVER, "training")
    steps = collections.Counter(step for step, _ in seen)
    assert set(steps) >= set(range(STEPS))
    assert set(steps.values()) == {TRAINING["global_batch_size"]}
    whole = training_stream(directory, steps=max(steps) + 1)
    assert seen == {place: each for place, each in whole.items() if place[0] in steps}
    for epoch in range(STEPS // STEPS_PER_EPOCH):
        ids = {id_ for (step, _), (id_, *_) in seen.items() if step // STEPS_PER_EPOCH == epoch}
        assert len(ids) == RECORDS
    seen = printed(lines, PARAMETER_SERVER, "evaluation 0")
    evaluation = evaluation_stream(directory)
    assert seen.items() >= evaluation.items()
    assert {seen[place][2] for place in seen.keys() - evaluation.keys()} <= {0.0}


def test_reference_evaluation_holds_each_record_once(directory: Path):
    seen = evaluation_stream(directory)
    size = EVALUATION["global_batch_size"]
    steps = make_evaluation_dataset(tf.distribute.get_strategy(), directory, **EVALUATION).steps
    assert len(seen) == steps * size == math.ceil(RECORDS / size) * size
    assert collections.Counter(weight for _, _, weight in seen.values()) == {
        1.0: RECORDS,
        0.0: len(seen) - RECORDS,
    }
    assert len({id_ for id_, _, weight in seen.values() if weight}) == RECORDS


@pytest.mark.parametrize("features", [("image", "label", "boxes", "seed"), None])
@pytest.mark.parametrize("host", [0, 1])
def test_hosts_of_tpus(directory: Path, features: tuple[str, ...] | None, host: int):
    """No TPU is needed to see what a host with 4 of 8 cores gets: static shapes, no strings."""
    config = InputConfig(height=24, width=16, channels=1, features=features)
    context = tf.distribute.InputContext(
        num_input_pipelines=2, input_pipeline_id=host, num_replicas_in_sync=8
    )
    options = {"split": "train", "global_batch_size": 32, "config": config}
    dataset = make_dataset(directory, input_context=context, **options)
    for spec in tf.nest.flatten(dataset.element_spec):
        assert spec.shape.is_fully_defined()
        assert spec.shape[0] == 4
        assert spec.dtype != tf.string
    assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
    # A core's rows are every 8th of a global batch's; the host's 4 cores follow each other.
    (whole,) = make_dataset(directory, **options).take(1)
    seed = plan_seed(load_info(directory).digest, "train", 0)
    order, *cores = (
        replica_rows(np.int64(0), np.int64(core), replicas=replicas, batch_units=32, seed=seed)
        for replicas, core in ((1, 0), *((8, 4 * host + core) for core in range(4)))
    )
    for own, batch in zip(cores, dataset.take(4), strict=True):
        mine = [order.tolist().index(row) for row in own]
        expected = tf.nest.map_structure(lambda each, mine=mine: each.numpy()[mine], whole)
        tf.nest.map_structure(np.testing.assert_array_equal, batch, expected)


def test_replicas_that_pipelines_cannot_share(directory: Path):
    with pytest.raises(
        ValueError,
        match="2 input pipelines can't feed 1 replicas evenly: choose a multiple of 2 for the "
        "InputContext's num_replicas_in_sync",
    ):
        make_dataset(directory, input_context=tf.distribute.InputContext(2, 0))


def test_evaluation_needs_a_batch(directory: Path):
    with pytest.raises(ValueError, match="global_batch_size 0 can't be divided by 1 replicas"):
        make_evaluation_dataset(
            tf.distribute.get_strategy(), directory, split="train", global_batch_size=0
        )


def test_lengths_are_known(directory: Path):
    """Workers that don't know them ask each other at every step whether any has come to an end."""
    strategy = tf.distribute.get_strategy()
    training = make_distributed_dataset(strategy, directory, **TRAINING)
    assert training.cardinality() == tf.data.INFINITE_CARDINALITY
    dataset, steps = make_evaluation_dataset(strategy, directory, **EVALUATION)
    assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
    assert steps == 2


def losses_of(images: np.ndarray, labels: np.ndarray, weights: list[Any]) -> np.ndarray:
    """Cross-entropy of each record by NumPy."""
    kernel, bias = (np.array(each) for each in weights)
    logits = images.reshape(len(images), -1) @ kernel + bias
    return np.log(np.exp(logits).sum(1)) - logits[np.arange(len(images)), labels]


def test_keras(directory: Path, tmp_path: Path):
    """`evaluate`, `fit` and `predict` give the same numbers under each strategy, and NumPy's."""
    command = ("tests.support.keras_worker", str(directory))
    results = single(tmp_path / "process", *command, str(tmp_path / "run"))
    workers = [(*command, str(tmp_path / "run of workers"))] * 2
    with processes(tmp_path / "cluster", {"worker": workers}) as started:
        wait_until(lambda: all(each.has_ended() for each in started), started)
        results += [line for each in started for line in each.lines()]
    names = [each["strategy"] for each in results]
    assert names == ["default", "one device", "mirrored", "multi-worker", "multi-worker"]
    size = keras_worker.GLOBAL_BATCH_SIZE
    # Any batch size that divides the records needs no padding.
    dataset, steps = make_evaluation_dataset(
        tf.distribute.get_strategy(),
        directory,
        split="train",
        global_batch_size=RECORDS,
        config=keras_worker.CONFIG,
    )
    (whole,) = dataset.take(steps)
    images, labels, weights = (each.numpy() for each in whole)
    assert weights.tolist() == [1.0] * RECORDS
    initial = keras_worker.initial_weights()
    losses = losses_of(images, labels, initial)
    padded = math.ceil(RECORDS / size) * size
    assert padded > RECORDS
    for each in results:
        evaluation = each["evaluation"]
        assert evaluation["weighted_loss"] == pytest.approx(losses.mean(), rel=1e-5)
        assert evaluation["loss"] == pytest.approx(losses.sum() / padded, rel=1e-5)
        assert each["steps"] == keras_worker.STEPS_PER_EPOCH * keras_worker.EPOCHS
        assert len(each["losses"]) == len(each["validation"]) == keras_worker.EPOCHS
        np.testing.assert_allclose(each["losses"], results[0]["losses"], rtol=1e-5)
        np.testing.assert_allclose(each["validation"], results[0]["validation"], rtol=1e-5)
        for own, first in zip(each["weights"], results[0]["weights"], strict=True):
            np.testing.assert_allclose(own, first, atol=1e-6)
        trained = losses_of(images, labels, each["weights"])
        assert each["validation"][-1] == pytest.approx(trained.mean(), rel=1e-5)
        # In the order of the records: row by row, whichever replica has predicted it.
        kernel, bias = (np.array(own) for own in each["weights"])
        logits = images.reshape(RECORDS, -1) @ kernel + bias
        assert len(each["predictions"]) == padded
        np.testing.assert_allclose(each["predictions"][:RECORDS], logits, rtol=1e-4, atol=1e-5)
    assert not np.allclose(results[0]["weights"][0], initial[0])
    for each in results[2:]:
        assert each["started_at"] == [0, keras_worker.STEPS_PER_EPOCH]
        for resumed, never_stopped in zip(each["resumed_weights"], each["weights"], strict=True):
            np.testing.assert_allclose(resumed, never_stopped, atol=1e-6)
