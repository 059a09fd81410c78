"""Loops of the documentation: Keras' own, resumed, and one for parameter servers."""

import importlib.util
import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras

from pipeline.training.keras_fit import EpochCheckpoints
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


def test_the_loop_for_parameter_servers(directory: Path, tmp_path: Path):
    command = ("docs.parameter_server_loop", str(directory), "30")
    commands = {"chief": [command], "worker": [command] * 2, "ps": [command]}
    with processes(tmp_path / "cluster", commands) as started:
        wait_until(started[0].has_ended, started)
        (losses,) = started[0].lines()
    assert len(losses) == 30
    assert np.isfinite(losses).all()
    assert len(set(losses)) > 20, "the weights or the batches stay the same"
