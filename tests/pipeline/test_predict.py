"""`python -m pipeline.predict`: each record of a split once, with its truth and predictions."""

import dataclasses
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf
from PIL import Image

from pipeline.config import InputConfig
from pipeline.predict import main, predict
from pipeline.records.info import load_info
from pipeline.serving.saved_model import DESCRIPTION, export
from pipeline.tasks.layout_classifier import LayoutClassifier
from pipeline.tasks.text_detector import text_mask
from schemas.file_names import shard_name
from schemas.receipt import Label
from tests.support.dataset_factory import BOX, LAYOUTS, write_dataset

pytestmark = pytest.mark.slow

LABELS = [Label(name="total", type="float")]
NAMES = [name for name, count in sorted(LAYOUTS.items()) for _ in range(count)]
IDS = [f"{name}-{number}" for number, name in enumerate(NAMES)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Darkness:
    """Predicts from pixels alone, so that what is right is known."""

    def inputs(self, info: Any) -> InputConfig:
        return InputConfig(height=60, width=40, channels=1, features=("image", "total", "label"))

    def build(self, info: Any) -> keras.Model:
        return keras.Sequential([keras.Input((60, 40, 1)), keras.layers.Rescaling(-1.0, 1.0)])

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        raise AssertionError("a prediction has no loss")

    metrics = loss

    def predictions(self, outputs: Any) -> dict[str, Any]:
        size = tf.shape(outputs)[0]
        return {
            "label": tf.fill([size], 2),
            "mask": outputs[..., 0],
            "boxes": tf.tile(tf.constant([[[0.0, 0.25, 0.5, 1.0]]]), [size, 2, 1]),
            "darkness": tf.reduce_mean(outputs, axis=(1, 2, 3)),
            "extremes": tf.stack(
                [tf.reduce_min(outputs, axis=(1, 2, 3)), tf.reduce_max(outputs, axis=(1, 2, 3))], 1
            ),
        }


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("dataset") / "receipts", labels=LABELS)


@pytest.fixture(scope="module")
def model(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "model"
    info = load_info(directory)
    export(Darkness(), Darkness().build(info), info, path)
    return path


def lines_of(path: Path) -> list[dict]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert found
    return found


@pytest.mark.parametrize("batch_size", [1, 7, 32, 50])
def test_each_record_once(directory: Path, model: Path, tmp_path: Path, batch_size: int):
    out = tmp_path / "deeper" / "found.jsonl"
    assert predict(model, directory, split="train", output=out, global_batch_size=batch_size) == 32
    lines = lines_of(out)
    assert sorted(line["id"] for line in lines) == sorted(IDS)
    assert not list(out.parent.glob("*.partial"))
    masks = {line["predictions"]["mask"] for line in lines}
    assert len(masks) == len(list((out.parent / "found_masks").iterdir())) == 32


def test_line_tells_truth_and_predictions(directory: Path, model: Path, tmp_path: Path, capsys):
    out = tmp_path / "found"
    command = [str(model), str(directory), "--split", "train", "--output", str(out)]
    assert main([*command, "--global-batch-size", "5"]) == 0
    assert capsys.readouterr().out == f"predicted 32 records of split train: {out}\n"
    xmin, ymin, xmax, ymax = BOX
    share = (xmax - xmin) * (ymax - ymin)
    expected = text_mask(tf.constant([[[ymin, xmin, ymax, xmax]]]), 60, 40)[0].numpy()
    for line in lines_of(out):
        name, number = line["id"].split("-")
        assert set(line) == {"id", "truth", "predictions"}
        assert line["truth"] == {"label": name, "total": 10.5 + int(number)}
        found = line["predictions"]
        assert set(found) == {"label", "label_id", "mask", "boxes", "darkness", "extremes"}
        assert found["boxes"] == [[0, 0.25, 0.5, 1]] * 2
        assert (found["label"], found["label_id"]) == ("gamma", 2)
        assert found["darkness"] == pytest.approx(share, rel=0.12)
        assert found["extremes"][0] == pytest.approx(0, abs=0.05)
        with Image.open(out.parent / found["mask"]) as image:
            assert image.mode == "L"
            mask = np.asarray(image)
        darkest = 255 - int(number) % 20
        np.testing.assert_allclose(mask / darkest, expected, atol=0.15)


def test_the_environment_names_the_dataset(
    directory: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setenv("TILLROLL_DATA_DIR", str(directory))
    out = tmp_path / "found.jsonl"
    assert main([str(model), "--output", str(out), "--split", "train"]) == 0
    assert len(lines_of(out)) == sum(LAYOUTS.values())


def test_another_dataset_tells_what_it_has(model: Path, tmp_path: Path):
    """Without the label `total`, with other layouts."""
    other = write_dataset(tmp_path / "other", counts={"sigma": 3, "tau": 2}, shards=1)
    out = tmp_path / "found.jsonl"
    assert predict(model, other, split="train", output=out) == 5
    assert {line["truth"]["label"] for line in lines_of(out)} == {"sigma", "tau"}
    assert {tuple(line["truth"]) for line in lines_of(out)} == {("label",)}


def test_names_are_those_of_the_classifier(directory: Path, tmp_path: Path):
    info = load_info(directory)
    task = LayoutClassifier(size=32, width=8, units=8)
    export(task, task.build(info), info, tmp_path / "model")
    predict(tmp_path / "model", directory, split="train", output=tmp_path / "found.jsonl")
    for line in lines_of(tmp_path / "found.jsonl"):
        assert line["predictions"]["label"] == info.layouts[line["predictions"]["label_id"]]
        assert 1 / len(LAYOUTS) <= line["predictions"]["probability"] <= 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--split", "test"], "has no split 'test': choose one of train, validation"),
        ([], "split 'validation' of .* is empty: choose another"),
        (
            ["--split=train", "--global-batch-size=0"],
            "--global-batch-size must be at least 1, got 0",
        ),
    ],
)
def test_errors(directory: Path, model: Path, tmp_path: Path, capsys, options: list, sentence: str):
    with pytest.raises(SystemExit) as stopped:
        main([str(model), str(directory), "--output", str(tmp_path / "found.jsonl"), *options])
    assert stopped.value.code == 2
    assert re.search(sentence, capsys.readouterr().err)
    assert not list(tmp_path.iterdir())


def test_needs_an_exported_model(directory: Path, tmp_path: Path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path), str(directory)])
    assert "holds no exported model (no file assets.extra/tillroll.json)" in capsys.readouterr().err


def test_a_damaged_description_is_named(directory: Path, model: Path, tmp_path: Path, capsys):
    copy = shutil.copytree(model, tmp_path / "model")
    (copy / DESCRIPTION).write_text("{")
    with pytest.raises(SystemExit):
        main([str(copy), str(directory)])
    assert f"{copy}/assets.extra/tillroll.json is damaged (" in capsys.readouterr().err


def test_a_damaged_record_is_named(directory: Path, model: Path, tmp_path: Path, capsys):
    copy = shutil.copytree(directory, tmp_path / "copy")
    shard = copy / shard_name("train", 1)
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert (
        main([str(model), str(copy), "--split=train", f"--output={tmp_path / 'found.jsonl'}"]) == 1
    )
    assert re.fullmatch(
        rf"{shard}: record \w+-\d+ at byte \d+ cannot be read; [^\n]*\n", capsys.readouterr().err
    )
    assert not (tmp_path / "found.jsonl").exists()
