"""Options that a run may change when it goes on, and their effects."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.augmentation.corruption import Noise
from pipeline.augmentation.photometric import Brightness
from pipeline.config import Balance, InputConfig, RandomCrop, Reading
from pipeline.records.info import DatasetInfo, load_info
from pipeline.train import main
from pipeline.training.loop import RunOptions
from pipeline.training.options import TrainOptions
from pipeline.training.run_identity import (
    COMPARISON_OPTIONS,
    FREE_INPUT_OPTIONS,
    FREE_OPTIONS,
    STREAM_OPTIONS,
    UPDATE_OPTIONS,
    RunIdentity,
)
from tests.support.tiny_task import TinyTask

OPTIONS = ("--quiet", "--global-batch-size=8", "--evaluation-split=train")
INPUT = InputConfig(features=("image", "label"), augmentations=(Brightness(),))


@pytest.fixture(scope="module")
def info(directory: Path) -> DatasetInfo:
    return load_info(directory)


def test_every_option_is_of_one_kind():
    kinds = [*STREAM_OPTIONS, *UPDATE_OPTIONS, *COMPARISON_OPTIONS, *FREE_OPTIONS]
    fields = (*dataclasses.fields(TrainOptions), *dataclasses.fields(RunOptions))
    assert sorted(kinds) == sorted(field.name for field in fields)


def stored(identity: RunIdentity) -> RunIdentity:
    return RunIdentity.from_json(identity.to_json())


@pytest.mark.parametrize(
    ("config", "changed"),
    [
        ({"height": 100}, ["input.height"]),
        ({"channels": 1}, ["input.channels"]),
        ({"crop": RandomCrop()}, ["input.crop"]),
        ({"crop": RandomCrop(min_side=0.5)}, ["input.crop", "input.crop.min_side"]),
        ({"fit": "stretch"}, ["input.fit"]),
        ({"dtype": "uint8"}, ["input.dtype"]),
        ({"label": "shop"}, ["input.label"]),
        ({"sample_weights": True}, ["input.sample_weights"]),
        ({"features": ("image", "label", "boxes")}, ["input.features.2"]),
        ({"max_boxes": 3}, ["input.max_boxes"]),
        ({"augmentations": ()}, ["input.augmentations.0"]),
        ({"augmentations": (Brightness(), Noise())}, ["input.augmentations.1"]),
        ({"balance": Balance(by="shop")}, ["input.balance.by"]),
        ({"balance": Balance(alpha=0.5)}, ["input.balance.alpha"]),
        ({"balance": Balance(alpha=((1.0, 0), (0.5, 9)))}, ["input.balance.alpha"]),
        ({"balance": Balance(alpha=((1.0, 0),))}, []),
        ({"balance": Balance(repeat_cap=2)}, ["input.balance.repeat_cap"]),
        ({"reading": Reading(block_length=4)}, ["input.reading.block_length"]),
        ({"reading": Reading(parallel_reads=4)}, []),
        ({"reading": Reading(buffer_bytes=4096)}, []),
        ({"parallel_decodes": 4}, []),
        ({"placement": "device", "features": ("image", "label", "seed")}, []),
    ],
    ids=str,
)
def test_options_of_the_input(info: DatasetInfo, config: dict[str, Any], changed: list[str]):
    def identity(**options: Any) -> RunIdentity:
        return RunIdentity.of(
            TinyTask(), info, dataclasses.replace(INPUT, **options), TrainOptions()
        )

    then, now = stored(identity()), identity(**config)
    found = [change.name for change in now.stream_changes(then)]
    assert set(found) >= set(changed)
    assert all(name.startswith(tuple(changed)) for name in found)
    assert not now.update_changes(then)
    for name in FREE_INPUT_OPTIONS:
        assert f"input.{name}" not in now.stream


def test_a_change_of_phases_can_be_read(info: DatasetInfo):
    then, now = (
        RunIdentity.of(
            TinyTask(),
            info,
            dataclasses.replace(INPUT, balance=Balance(alpha=alpha)),
            TrainOptions(),
        )
        for alpha in (((1, 0), (0.5, 9)), ((1, 0), (0.5, 7), (0, 9)))
    )
    assert [str(each) for each in now.stream_changes(stored(then))] == [
        "input.balance.alpha: 1.0@0,0.5@9 then, 1.0@0,0.5@7,0.0@9 now"
    ]


def test_every_option_of_the_input_is_compared_or_free(info: DatasetInfo):
    stream = RunIdentity.of(TinyTask(), info, INPUT, TrainOptions()).stream
    for options, prefix in ((INPUT, ""), (INPUT.balance, "balance."), (INPUT.reading, "reading.")):
        for field in dataclasses.fields(options):
            name = prefix + field.name
            is_compared = any(each.startswith(f"input.{name}") for each in stream)
            assert is_compared != (name in FREE_INPUT_OPTIONS), name


@dataclass(frozen=True)
class LaterTask(TinyTask):
    """A task that got a field since a checkpoint was written."""

    depth: int = 2


@pytest.mark.parametrize(("depth", "changed"), [(2, []), (3, ["task.depth: 2 then, 3 now"])])
def test_a_new_field_at_its_default_is_no_change(info: DatasetInfo, depth: int, changed: list[str]):
    LaterTask.__qualname__ = TinyTask.__qualname__
    then = stored(RunIdentity.of(TinyTask(), info, INPUT, TrainOptions()))
    now = RunIdentity.of(LaterTask(depth=depth), info, INPUT, TrainOptions())
    assert [str(each) for each in now.stream_changes(then)] == changed


def test_a_function_is_the_same_in_another_process(info: DatasetInfo):
    """Python tells functions by their addresses."""

    def identity() -> RunIdentity:
        def darker(examples: dict[str, Any], seeds: Any) -> dict[str, Any]:
            return {**examples, "image": examples["image"] * 0.5}

        augmentations = (darker, tf.function(darker))
        config = dataclasses.replace(INPUT, augmentations=augmentations)
        return RunIdentity.of(TinyTask(), info, config, TrainOptions())

    one, other = identity(), identity()
    assert one == other
    assert "darker" in str(one.stream["input.augmentations.0"])


Train = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def train(directory: Path, tmp_path: Path) -> Train:
    """Runs the command in the test's run folder, and returns its log."""

    def run(*options: str) -> list[dict[str, Any]]:
        task = "--task=tests.support.tiny_task:TinyTask"
        assert main([str(directory), f"--run-dir={tmp_path}", task, *OPTIONS, *options]) == 0
        return [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]

    return run


def test_another_learning_rate_counts_from_now_on(train: Train, capsys: pytest.CaptureFixture[str]):
    train("--schedule=constant", "--learning-rate=0.01", "--steps=2")
    lines = train("--schedule=constant", "--learning-rate=0.00001", "--steps=4")
    assert capsys.readouterr().err == (
        "from step 3 on, other options count:\n  learning_rate: 0.01 then, 1e-05 now\n"
        "  steps: 2 then, 4 now\n"
    )
    changed = {"learning_rate": [0.01, 1e-05], "steps": [2, 4]}
    assert [each["changed"] for each in lines if "changed" in each] == [changed]
    rates = [each["learning_rate"] for each in lines if "loss" in each]
    assert rates == pytest.approx([0.01, 1e-05])
    lines = train("--learning-rate=0.5", "--steps=8", "--steps-per-call=1", "--weight-decay=0.1")
    rates = [each["learning_rate"] for each in lines if "loss" in each]
    assert rates[-1] == pytest.approx(0, abs=1e-6)
    assert [each for each in lines if "changed" in each][-1]["changed"] == {
        "learning_rate": [1e-05, 0.5],
        "schedule": ["constant", "cosine"],
        "steps": [4, 8],
        "weight_decay": [0.0, 0.1],
    }


def test_the_rate_follows_another_batch_size(train: Train):
    options = ("--schedule=constant", "--learning-rate=0.01", "--learning-rate-batch=8")
    train(*options, "--steps=1")
    lines = train(*options, "--steps=2", "--global-batch-size=16", "--other-data")
    rates = [each["learning_rate"] for each in lines if "loss" in each]
    assert rates == pytest.approx([0.01, 0.02])


def test_options_that_change_nothing_are_free(train: Train, capsys: pytest.CaptureFixture[str]):
    no_steps = "the run was at its last step, 2: to go on, choose more steps\n"
    train("--steps=2", "--augment=weak")
    (loss,) = [each["loss"] for each in train("--steps=2", "--augment=weak") if "loss" in each]
    assert capsys.readouterr().err == no_steps
    free = ("--placement=device", "--steps-per-call=3", "--checkpoint-every=7", "--keep=1")
    train("--steps=2", "--augment=weak", *free, "--evaluate-every=4", "--patience=9")
    assert capsys.readouterr().err == no_steps
    assert loss > 0


def test_losses_of_another_split_are_not_compared(
    directory: Path, tmp_path: Path, train: Train, monkeypatch: pytest.MonkeyPatch
):
    """`best` and patience begin anew."""
    train("--steps=2")
    log = tmp_path / "log.jsonl"
    best = next((tmp_path / "best").glob("*.index")).name
    assert best == "step-2.index"
    text = log.read_text().splitlines()
    (row,) = [number for number, line in enumerate(text) if "validation/loss" in line]
    loss = json.loads(text[row])["validation/loss"]
    text[row] = text[row].replace(str(loss), "0.0")  # a loss that no evaluation undercuts
    log.write_text("\n".join([*text, ""]))
    train("--steps=3")
    assert [path.name for path in (tmp_path / "best").glob("*.index")] == ["step-2.index"]
    train("--steps=4", "--seed=1", "--other-data")
    assert [path.name for path in (tmp_path / "best").glob("*.index")] == ["step-4.index"]
