"""Loops of the documentation: Keras' own, resumed, and one for parameter servers."""

import dataclasses
import importlib.util
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf

from pipeline.records.info import load_info
from pipeline.training.keras_fit import EpochCheckpoints, MultiWorkerModel
from tests.support.dataset_factory import exclude, write_dataset
from tests.support.processes import processes, wait_until

DOCS = Path(__file__).parents[2] / "docs"


def example(name: str) -> ModuleType:
    """A module of the documentation."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_resumed_fit_ends_with_the_weights_of_one_that_was_never_stopped(
    directory: Path, tmp_path: Path
):
    keras_fit = example("keras_fit")

    def weights(run_dir: str, *, epochs: int) -> list[np.ndarray]:
        options = (f"--epochs={epochs}", "--global-batch-size=8", "--evaluation-split=train")
        model = keras_fit.main([str(directory), str(tmp_path / run_dir), *options])
        assert int(model.optimizer.iterations) == epochs * 32 // 8
        return model.get_weights()

    at_once = weights("at once", epochs=3)
    stopped = weights("stopped", epochs=1)
    resumed = weights("stopped", epochs=3)
    finished = weights("stopped", epochs=3)
    for expected, early, own, again in zip(at_once, stopped, resumed, finished, strict=True):
        assert not np.allclose(early, expected)
        np.testing.assert_allclose(own, expected, atol=1e-6)
        np.testing.assert_array_equal(again, own)


@pytest.mark.parametrize(
    ("compiled", "layers"),
    [
        pytest.param(False, [keras.Input((4,)), keras.layers.Dense(1)], id="not compiled"),
        pytest.param(True, [keras.layers.Dense(1)], id="not built"),
    ],
)
def test_a_model_without_variables_or_optimizer(tmp_path: Path, compiled: bool, layers: list):
    model = keras.Sequential(layers, name="net")
    if compiled:
        model.compile("sgd", "mse")
    sentence = (
        "net is not compiled and built: call compile and, unless it has an Input layer, build "
        "before EpochCheckpoints"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        EpochCheckpoints(model, tmp_path)


def small_model(*, units: int = 1) -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units)])
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize("fault", ["gone", "cut off", "of another model"])
def test_a_checkpoint_that_can_not_be_restored(tmp_path: Path, fault: str):
    """The run does not begin anew in silence."""
    model = small_model()
    model.fit(np.ones((8, 4)), np.ones(8), verbose=0, callbacks=[EpochCheckpoints(model, tmp_path)])
    assert EpochCheckpoints(small_model(), tmp_path).step == 1
    data = tmp_path / "step-1.data-00000-of-00001"
    if fault == "gone":
        data.unlink()
        (tmp_path / "step-1.index").unlink()
    elif fault == "cut off":
        data.write_bytes(data.read_bytes()[:20])
    sentence = (
        f"{tmp_path / 'step-1'} can't be restored: bring back its files and the model it was made "
        "of, or choose another directory ("
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        EpochCheckpoints(small_model(units=2 if "model" in fault else 1), tmp_path)


@pytest.mark.parametrize("fault", ["gone", "garbled", "older"])
def test_a_list_of_checkpoints_that_does_not_name_the_newest(tmp_path: Path, fault: str):
    model = small_model()
    saved = EpochCheckpoints(model, tmp_path)
    listed = tmp_path / "checkpoint"
    model.fit(np.ones((8, 4)), np.ones(8), verbose=0, callbacks=[saved])
    older = listed.read_bytes()
    model.fit(np.ones((8, 4)), np.ones(8), verbose=0, callbacks=[saved])
    if fault == "gone":
        listed.unlink()
    else:
        listed.write_bytes(older if fault == "older" else b"\0no list")
    expectation = warns if fault == "garbled" else nullcontext
    with expectation():
        assert EpochCheckpoints(small_model(), tmp_path).step == 2
    assert b"step-2" in listed.read_bytes()


def warns() -> AbstractContextManager:
    return pytest.warns(RuntimeWarning, match="checkpoint can't be read: it is made again from")


ROWS = np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32)
STEPS = 6


def start(run_dir: Path, optimizer: keras.optimizers.Optimizer, *, epochs: int) -> keras.Model:
    """A start of a program that trains epochs of 6 steps on the rows from its step on."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    checkpoints = EpochCheckpoints(model, run_dir)
    rows = np.roll(ROWS, -4 * checkpoints.step, axis=0)
    dataset = tf.data.Dataset.from_tensor_slices((rows, rows.sum(1))).repeat().batch(4)
    model.fit(
        dataset,
        steps_per_epoch=STEPS,
        initial_epoch=checkpoints.step // STEPS,
        epochs=epochs,
        callbacks=[checkpoints],
        verbose=0,
    )
    assert checkpoints.step == epochs * STEPS
    return model


def accumulating() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.01, gradient_accumulation_steps=4)


def skipping() -> keras.optimizers.Optimizer:
    """Skips and does not count the first steps, whose gradients overflow."""
    return keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.01), initial_scale=1e38, dynamic_growth_steps=3
    )


@pytest.mark.parametrize("make", [accumulating, skipping])
def test_an_optimizer_that_does_not_count_every_batch(tmp_path: Path, make: Callable):
    at_once = start(tmp_path / "at once", make(), epochs=3)
    assert int(at_once.optimizer.iterations) < 3 * STEPS
    for epochs in (2, 3):
        resumed = start(tmp_path / "resumed", make(), epochs=epochs)
    for expected, weights in zip(at_once.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_allclose(weights, expected, atol=1e-6)


def older_checkpoint(run_dir: Path, optimizer: keras.optimizers.Optimizer) -> None:
    """A checkpoint of 6 steps without a number of batches."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    model.fit(ROWS, ROWS.sum(1), batch_size=4, verbose=0)
    checkpoint = tf.train.Checkpoint(model=model, seeds=[], optimizer=optimizer)
    tf.train.CheckpointManager(
        checkpoint, str(run_dir), max_to_keep=2, checkpoint_name="step"
    ).save(checkpoint_number=int(optimizer.iterations))


def test_a_checkpoint_without_a_number_of_batches(tmp_path: Path):
    older_checkpoint(tmp_path / "plain", keras.optimizers.SGD(0.01))
    start(tmp_path / "plain", keras.optimizers.SGD(0.01), epochs=2)
    older_checkpoint(tmp_path / "accumulated", accumulating())
    with pytest.raises(ValueError, match="does not tell how many batches its model has seen"):
        start(tmp_path / "accumulated", accumulating(), epochs=2)


def test_a_learning_rate_of_the_program_counts_and_is_told(tmp_path: Path):
    start(tmp_path, keras.optimizers.SGD(0.1), epochs=1)
    sentence = r"count from step 6 on:\n  optimizer.learning_rate: 0.1 then, 0.001 now$"
    with pytest.warns(RuntimeWarning, match=sentence):
        model = start(tmp_path, keras.optimizers.SGD(0.001), epochs=2)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.001)


def test_a_learning_rate_that_a_callback_has_changed_stays(tmp_path: Path):
    model = small_model()
    checkpoints = EpochCheckpoints(model, tmp_path)
    halve = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    model.fit(ROWS, ROWS.sum(1), epochs=2, verbose=0, callbacks=[halve, checkpoints])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        resumed = small_model()
        EpochCheckpoints(resumed, tmp_path)
    assert float(resumed.optimizer.learning_rate) == pytest.approx(0.01 / 4)


def test_epochs_of_another_length(tmp_path: Path):
    """Another batch size, say: `fit` would train no epoch, or one twice."""
    model = small_model()
    checkpoints = EpochCheckpoints(model, tmp_path)
    model.fit(ROWS, ROWS.sum(1), batch_size=4, epochs=2, verbose=0, callbacks=[checkpoints])
    resumed = small_model()
    checkpoints = EpochCheckpoints(resumed, tmp_path)
    assert checkpoints.step == 12
    with pytest.raises(ValueError, match="steps_per_epoch is 3, and was 6 before step 12"):
        resumed.fit(ROWS, ROWS.sum(1), batch_size=8, verbose=0, callbacks=[checkpoints])


def test_another_dataset(directory: Path, tmp_path: Path):
    info = load_info(directory)
    model = small_model()
    model.fit(
        ROWS,
        ROWS.sum(1),
        verbose=0,
        callbacks=[EpochCheckpoints(model, tmp_path / "run", info=info)],
    )
    assert EpochCheckpoints(small_model(), tmp_path / "run", info=info).step == 1
    assert EpochCheckpoints(small_model(), tmp_path / "run").step == 1
    exclude(write_dataset(tmp_path / "receipts"), {0: [0]})
    other = load_info(tmp_path / "receipts")
    with pytest.raises(ValueError, match="give that dataset, or choose another directory"):
        EpochCheckpoints(small_model(), tmp_path / "run", info=other)
    grown = dataclasses.replace(other, manifest=dataclasses.replace(other.manifest, version=2))
    # Told before the variables are restored, whose shapes may follow from the dataset.
    with pytest.raises(ValueError, match=r"version 1 of a dataset.* \(version 2\): pass version=1"):
        EpochCheckpoints(small_model(units=2), tmp_path / "run", info=grown)


LOADING = """
import sys, keras, tillroll
tillroll.MultiWorkerModel
model = keras.models.load_model(sys.argv[1])
print(type(model).__name__, model.count_params())
"""


def test_a_multi_worker_model_is_loaded_in_another_program(tmp_path: Path):
    image = keras.Input((4,))
    model = MultiWorkerModel(image, keras.layers.Dense(3)(image))
    model.compile("sgd", "mse")
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(ROWS, verbose=0), model.predict(ROWS, verbose=0))
    command = [sys.executable, "-c", LOADING, str(tmp_path / "model.keras")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=DOCS.parent)
    assert printed.stdout == "MultiWorkerModel 15\n"


def test_the_loop_for_parameter_servers(directory: Path, tmp_path: Path):
    command = ("docs.parameter_server_loop", str(directory), "30")
    commands = {"chief": [command], "worker": [command] * 2, "ps": [command]}
    with processes(tmp_path / "cluster", commands) as started:
        wait_until(started[0].has_ended, started)
        (losses,) = started[0].lines()
    assert len(losses) == 30
    assert np.isfinite(losses).all()
    assert len(set(losses)) > 20, "the weights or the batches stay the same"
