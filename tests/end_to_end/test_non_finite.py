"""A run whose loss or weights are no numbers any more."""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.evaluation.evaluator import Evaluation
from pipeline.records.info import DatasetInfo
from pipeline.train import main
from pipeline.training.run_directory import RunFolder
from pipeline.training.trainer import Trainer
from tests.support.receipts import contents
from tests.support.tiny_task import TinyTask

OPTIONS = ("--quiet", "--global-batch-size=8", "--evaluation-split=train", "--steps-per-call=5")


@dataclasses.dataclass(frozen=True)
class PoisonedTask(TinyTask):
    """Its loss, or only the gradient of its loss, is NaN at one step."""

    loss_step: int = -1
    gradient_step: int = -1

    def inputs(self, info: DatasetInfo) -> InputConfig:
        inputs = super().inputs(info)
        return dataclasses.replace(inputs, features=("image", "label", "step"))

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        loss = super().loss(outputs, batch)
        in_training = "layout_id" not in batch  # which the evaluation adds
        if in_training:
            loss += tf.where(batch["step"] == self.loss_step, math.nan, 0.0)
            root = tf.sqrt(tf.abs(outputs[:, 0]) * 0)  # 0, of which the derivative is NaN
            loss += tf.where(batch["step"] == self.gradient_step, root, 0.0)
        return loss


def lines(run_dir: Path) -> list[dict[str, Any]]:
    """The log as a strict reader of JSON sees it."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    text = (run_dir / "log.jsonl").read_text()
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("poison", "sentence"),
    [
        ("--model.loss_step=12", "the loss of step 13 is nan"),
        ("--model.gradient_step=9", "the weights after step 10 hold numbers that are not finite"),
    ],
)
def test_a_run_ends_before_it_overwrites_anything(
    directory: Path,
    tmp_path: Path,
    poison: str,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
):
    options = ("--checkpoint-every=5", "--evaluate-every=5", "--keep=1", "--steps=20", poison)
    task = "--task=tests.end_to_end.test_non_finite:PoisonedTask"
    command = [str(directory), f"--run-dir={tmp_path}", task, *OPTIONS, *options]
    assert main(command) == 1
    error = capsys.readouterr().err
    assert sentence in error
    newest = tf.train.latest_checkpoint(str(tmp_path / "checkpoints"))
    assert f"the newest checkpoint, of step {newest.rpartition('-')[2]}, is left as it is" in error
    kept = contents(tmp_path / "checkpoints") | contents(tmp_path / "best")
    reader = tf.train.load_checkpoint(newest)
    types = reader.get_variable_to_dtype_map()
    names = [name for name, dtype in types.items() if dtype == tf.float32]
    assert len(names) > 5  # kernel and bias, and the two moments of both
    assert all(tf.reduce_all(tf.math.is_finite(reader.get_tensor(name))) for name in names)
    *before, last = (line["loss"] for line in lines(tmp_path) if "loss" in line)
    assert last is None  # so that readers of the log know why it ends
    assert all(map(math.isfinite, before))
    assert main(command) == 1
    assert contents(tmp_path / "checkpoints") | contents(tmp_path / "best") == kept


@pytest.fixture
def evaluated_losses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Losses that the next evaluations come to."""
    losses: list[float] = []
    evaluate = Trainer.evaluate

    def evaluate_as_told(trainer: Trainer, split: str) -> Evaluation:
        evaluation = evaluate(trainer, split)
        averages = {**evaluation.averages, "loss": losses.pop(0)}
        return dataclasses.replace(evaluation, averages=averages)

    monkeypatch.setattr(Trainer, "evaluate", evaluate_as_told)
    return losses


def evaluations(run_dir: Path) -> Iterator[Any]:
    return (each["validation/loss"] for each in lines(run_dir) if "validation/loss" in each)


def test_an_evaluation_that_is_no_number_is_neither_best_nor_counted(
    directory: Path,
    tmp_path: Path,
    evaluated_losses: list[float],
    capsys: pytest.CaptureFixture[str],
):
    evaluated_losses += [math.nan, math.nan, 1.5, math.inf, 1.2, 1.1, 1.3, math.nan, 1.4]
    options = ("--evaluate-every=1", "--steps=9", "--patience=2", "--steps-per-call=1")
    command = [
        str(directory),
        f"--run-dir={tmp_path}",
        "--task=tests.support.tiny_task:TinyTask",
        *OPTIONS[1:],
        *options,  # not --quiet, which prints no evaluation
    ]
    assert main(command) == 0
    assert list(evaluations(tmp_path)) == [None, None, 1.5, None, 1.2, 1.1, 1.3, None, 1.4]
    assert [path.stem for path in (tmp_path / "best").glob("*.index")] == ["step-6"]
    assert "validation loss nan (not counted: it is not a finite number)" in capsys.readouterr().out
    assert main(command) == 0  # patience is over, so nothing is left to do
    assert len(list(evaluations(tmp_path))) == 9


def test_the_log_has_no_constants_that_are_not_json(tmp_path: Path):
    folder = RunFolder(str(tmp_path))
    folder.log(1, {"loss": 0.5, "validation/loss": math.nan, "validation/accuracy": math.inf})
    assert lines(tmp_path) == [
        {"step": 1, "loss": 0.5, "validation/loss": None, "validation/accuracy": None}
    ]
    (line,) = folder.lines()
    assert math.isnan(line["validation/loss"])
    assert math.isnan(line["validation/accuracy"])
