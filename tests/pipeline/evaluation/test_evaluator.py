"""Evaluation: exact sums over layouts, and what was taken for what, each record once."""

import csv
import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.dataset import make_evaluation_dataset
from pipeline.records.info import DatasetInfo, load_info
from pipeline.train import main
from pipeline.training.trainer import Trainer, TrainOptions
from tests.support.dataset_factory import LAYOUTS, exclude, write_dataset
from tests.support.tiny_task import TinyTask

pytestmark = pytest.mark.slow

NAMES = sorted(LAYOUTS)


def trainer(directory: Path, batch_size: int, task: TinyTask | None = None) -> Trainer:
    options = TrainOptions(steps=1, global_batch_size=batch_size, seed=3)
    return Trainer(task or TinyTask(), tf.distribute.get_strategy(), load_info(directory), options)


@pytest.mark.parametrize("batch_size", [5, 32, 50])
def test_counts_what_was_taken_for_what(directory: Path, batch_size: int):
    made = trainer(directory, batch_size)
    (batch,) = make_evaluation_dataset(
        tf.distribute.get_strategy(),
        directory,
        split="train",
        global_batch_size=32,
        config=TinyTask().inputs(made.info),
    ).dataset.take(1)
    flat = batch["image"].numpy().reshape(32, -1)
    kernel = np.random.default_rng(0).normal(size=(flat.shape[1], 4))
    # The images are much alike: the net looks at what distinguishes them.
    made.model.layers[-1].set_weights([kernel, -flat.mean(axis=0) @ kernel])
    predicted = made.predict(batch["image"].numpy())["label"]
    np.testing.assert_array_equal(predicted, np.argmax(made.model(batch["image"]), axis=-1))
    expected = np.zeros((4, 4), int)
    np.add.at(expected, (batch["label"].numpy(), predicted), 1)
    assert (expected.sum(axis=0) > 0).sum() > 1

    evaluation = made.evaluate("train")
    found = np.zeros((4, 4), int)
    assert evaluation.confusion is not None
    np.add.at(found, tuple(evaluation.confusion[:, :2].T), evaluation.confusion[:, 2])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(evaluation.records, [LAYOUTS[name] for name in NAMES])
    recall = expected.diagonal() / expected.sum(axis=1)
    np.testing.assert_allclose(evaluation.by_layout["accuracy"], recall, rtol=1e-6)
    assert evaluation.averages["accuracy"] == pytest.approx(expected.trace() / 32)


@dataclass(frozen=True)
class TwoViews(TinyTask):
    """Judges two views of each image; its loss and metric are means over them."""

    def inputs(self, info: DatasetInfo) -> InputConfig:
        return dataclasses.replace(super().inputs(info), views=2)

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        labels = tf.repeat(batch["label"], 2)
        return tf.reduce_mean(tf.reshape(super().loss(outputs, {"label": labels}), [-1, 2]), 1)

    def metrics(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        accuracy = super().metrics(outputs, {"label": tf.repeat(batch["label"], 2)})["accuracy"]
        return {"accuracy": tf.reduce_mean(tf.reshape(accuracy, [-1, 2]), 1)}


@pytest.mark.parametrize("batch_size", [5, 32])
def test_each_record_counts_once_however_many_views_it_has(directory: Path, batch_size: int):
    made = trainer(directory, batch_size, TwoViews())
    assert len(made.train(made.batches(), 1).losses) == 1
    evaluation = made.evaluate("train")
    assert evaluation.confusion is not None
    assert evaluation.confusion[:, 2].sum() == 32
    np.testing.assert_array_equal(evaluation.records, [LAYOUTS[name] for name in NAMES])


def test_a_split_that_is_evaluated_again_is_not_loaded_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch
):
    made = trainer(directory, 5)
    first = made.evaluate("train")
    monkeypatch.setattr("pipeline.evaluation.evaluator.make_evaluation_dataset", None)
    second = made.evaluate("train")
    assert second.averages == first.averages
    np.testing.assert_array_equal(second.records, first.records)


def test_a_run_tells_of_layouts(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    """In the log, in a table, on the console, and in TensorBoard without one tag per layout."""
    options = ["--steps=4", "--global-batch-size=8", "--evaluate-every=2", "--steps-per-call=1"]
    task = ["--task=tests.support.tiny_task:TinyTask", "--evaluation-split=train"]
    assert main([str(directory), f"--run-dir={tmp_path}", *task, *options]) == 0

    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    last = [line for line in lines if "validation/loss" in line][-1]
    with (tmp_path / "layouts.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["layout"] for row in rows] == ["omega", "gamma", "beta", "alpha"]
    assert [row["half"] for row in rows] == ["rare", "rare", "common", "common"]
    assert [int(row["training_records"]) for row in rows] == [1, 2, 9, 20]
    assert [int(row["evaluated_records"]) for row in rows] == [1, 2, 9, 20]
    for name in ("loss", "accuracy"):
        values = [float(row[name]) for row in rows]
        assert last[f"validation/{name}/rare_half"] == pytest.approx(np.mean(values[:2]), rel=1e-4)
        assert last[f"validation/{name}/common_half"] == pytest.approx(
            np.mean(values[2:]), rel=1e-4
        )
        assert last[f"validation/{name}/macro"] == pytest.approx(np.mean(values), rel=1e-4)
        weighted = np.average(values, weights=[1, 2, 9, 20])
        assert last[f"validation/{name}"] == pytest.approx(weighted, rel=1e-4)

    printed = capsys.readouterr()
    assert re.search(r"loss \d\.\d{3}, [\d,]+ images/s, \d+% waiting for input", printed.err)
    accuracy = r"accuracy \d\.\d{3} \(rare half \d\.\d{3}: 2 layouts, 3 records\)"
    sentence = rf"step 4: validation loss \d\.\d{{3}}, {accuracy}"
    assert re.search(sentence, printed.out)

    (events,) = (tmp_path / "tensorboard").iterdir()
    tags = {
        value.tag
        for event in tf.compat.v1.train.summary_iterator(str(events))
        for value in event.summary.value
    }
    measured = {"loss", "images_per_s", "input_wait", "learning_rate"}
    assert {tag for tag in tags if not tag.startswith("time/")} == {
        *(f"training/{name}" for name in measured),
        *(name for name in last if name != "step"),
        "validation/samples",
        "validation/confusion",
    }
    for name in ("samples.png", "confusion.png", "plot.png"):
        assert (tmp_path / name).stat().st_size > 1000


def test_fewer_records_than_samples(tmp_path: Path):
    """The rest of the batch of samples is padding, and is not drawn."""
    directory = write_dataset(tmp_path / "receipts", counts={"alpha": 3, "beta": 2}, shards=2)
    exclude(directory, {0: [0]})
    options = ["--steps=1", "--global-batch-size=2", "--evaluation-split=train", "--quiet"]
    run_dir = tmp_path / "run"
    task = "--task=tests.support.tiny_task:TinyTask"
    assert main([str(directory), f"--run-dir={run_dir}", task, *options]) == 0
    picture = tf.io.decode_png((run_dir / "samples.png").read_bytes())
    assert picture.shape[0] < picture.shape[1] / 3, "one row of four"


def test_augmentation_from_the_command_line(directory: Path, tmp_path: Path):
    """The place makes no difference; the dtype of the images on the device makes a small one."""
    found = {}
    for number, options in enumerate(
        (
            (),
            ("--placement=device",),
            ("--image-dtype=uint8",),
            ("--augment=none",),
            ("--augment=strong", "--placement=device"),
        )
    ):
        run_dir = tmp_path / f"{number}"
        task = ("--task=tests.support.tiny_task:TinyTask", "--evaluation-split=train", "--quiet")
        steps = ("--steps=3", "--steps-per-call=1", "--global-batch-size=8")
        assert main([str(directory), f"--run-dir={run_dir}", *task, *steps, *options]) == 0
        lines = map(json.loads, (run_dir / "log.jsonl").read_text().splitlines())
        found[number] = [line["loss"] for line in lines if "loss" in line]
    assert len(found[0]) == 3
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    np.testing.assert_allclose(found[2], found[0], rtol=0.02)
    assert found[2] != found[0]
    for number in (3, 4):
        assert not np.allclose(found[number], found[0], rtol=1e-4)
