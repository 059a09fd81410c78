"""The model of a training run, as a SavedModel."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf

from pipeline import train
from pipeline.evaluation.evaluator import Evaluation
from pipeline.export import main
from pipeline.training.trained_model import load_trained_model
from pipeline.training.trainer import Trainer
from tests.support.dataset_factory import LAYOUTS, write_dataset

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose best checkpoint is not its newest."""
    folder = tmp_path_factory.mktemp("trained")
    directory = write_dataset(folder / "receipts")
    command = [
        f"--run-dir={folder / 'run'}",
        "--task=tests.support.tiny_task:TinyTask",
        "--model.size=16",
        "--quiet",
        "--global-batch-size=8",
        "--evaluation-split=train",
    ]
    evaluate = Trainer.evaluate

    def evaluate_badly(trainer: Trainer, split: str) -> Evaluation:
        evaluation = evaluate(trainer, split)
        return dataclasses.replace(evaluation, averages={**evaluation.averages, "loss": 99.0})

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILLROLL_DATA_DIR", str(directory))
        assert train.main([*command, "--steps=3"]) == 0
        patch.setattr(Trainer, "evaluate", evaluate_badly)
        assert train.main([*command, "--steps=9"]) == 0
    return folder / "run"


@pytest.mark.parametrize(
    ("checkpoint", "folder", "step"), [("best", "best", 3), ("newest", "checkpoints", 9)]
)
def test_the_model_of_a_run(
    run_dir: Path,
    tmp_path: Path,
    checkpoint: str,
    folder: str,
    step: int,
    capsys: pytest.CaptureFixture[str],
):
    path = tf.train.latest_checkpoint(str(run_dir / folder))
    trained = load_trained_model(str(run_dir), checkpoint=checkpoint)
    assert trained.step == step
    reader = tf.train.load_checkpoint(path)
    stored = [
        reader.get_tensor(name)
        for name, shape in reader.get_variable_to_shape_map().items()
        if shape == [16 * 16, len(LAYOUTS)]
    ]
    kernel = trained.model.weights[0].numpy()
    assert any(np.array_equal(each, kernel) for each in stored)

    out = tmp_path / "model"
    assert main([str(run_dir), f"--output={out}", f"--checkpoint={checkpoint}"]) == 0
    assert capsys.readouterr().out == f"exported the model of step {trained.step}: {out}\n"
    images = np.random.default_rng(0).random((5, 16, 16, 1), np.float32)
    found = tf.saved_model.load(str(out)).signatures["images"](images=images)["label_id"]
    expected = np.argmax(trained.model(images, training=False), axis=-1)
    np.testing.assert_array_equal(found, expected)


@pytest.fixture
def copy(run_dir: Path, tmp_path: Path) -> Path:
    """A run folder that a test may change."""
    for name in ("options.json", *(f"best/{path.name}" for path in (run_dir / "best").iterdir())):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((run_dir / name).read_bytes())
    return tmp_path


def test_errors(copy: Path, capsys: pytest.CaptureFixture[str]):
    def error(*options: str) -> str:
        with pytest.raises(SystemExit):
            main([str(copy), f"--output={copy / 'model'}", *options])
        assert not (copy / "model").exists()
        return capsys.readouterr().err

    assert "checkpoints holds no checkpoint: train longer" in error("--checkpoint=newest")
    assert "nowhere holds no finished dataset" in error("--data-dir=nowhere")
    other = write_dataset(copy / "other", counts={"alpha": 3, "beta": 1, "gamma": 1, "omega": 1})
    assert "\n  dataset: " in error(f"--data-dir={other}")
    options = json.loads((copy / "options.json").read_text())
    (copy / "options.json").write_text(json.dumps({**options, "model": {"size": "20"}}))
    assert "\n  task.size: 16 then, 20 now\n" in error()
    (copy / "options.json").write_text(json.dumps(options))
    for path in (copy / "best").glob("*.data-*"):
        path.write_bytes(b"")
    assert "step-3.data-00000-of-00001 was changed, cut short or removed)" in error()
    (copy / "options.json").unlink()
    assert f"{copy} is not the folder of a training run (no file options.json)" in error()


@pytest.mark.parametrize("floatx", ["float16", "float64"])
def test_a_model_is_loaded_whatever_keras_floatx_is(run_dir: Path, floatx: str):
    expected = load_trained_model(str(run_dir)).model.get_weights()
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(floatx)  # as keras.json does
    try:
        model = load_trained_model(str(run_dir)).model
    finally:
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])
    for weights, original in zip(model.get_weights(), expected, strict=True):
        assert weights.dtype == np.float32
        np.testing.assert_array_equal(weights, original)
