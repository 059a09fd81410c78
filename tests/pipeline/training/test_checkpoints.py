"""Which checkpoint a run goes on from when some are missing or damaged."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

import keras

from pipeline.training.checkpoints import Checkpoints
from pipeline.training.run_identity import RunIdentity
from tests.support.receipts import contents

STEPS = (20, 40, 60)
IDENTITY = RunIdentity(stream={"seed": 0}, updates={})


def open_checkpoints(folder: Path, *, keep: int = 3) -> tuple[Checkpoints, keras.Model]:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    optimizer = keras.optimizers.SGD()
    optimizer.build(model.trainable_variables)
    checkpoints = Checkpoints(
        str(folder), model=model, optimizer=optimizer, identity=IDENTITY, keep=keep
    )
    return checkpoints, model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Checkpoints of three steps, each of weights that are all the step's number."""
    checkpoints, model = open_checkpoints(tmp_path / "run" / "checkpoints")
    for step in STEPS:
        for weight in model.weights:
            weight.assign(weight * 0 + step)
        checkpoints.save(step)
    return tmp_path / "run" / "checkpoints"


def remove(*suffixes: str, steps: tuple[int, ...] = (60,)) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for step in steps:
            for suffix in suffixes:
                (folder / f"step-{step}{suffix}").unlink()

    return damage


def shorten(name: str, size: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / name
        assert path.stat().st_size > size
        path.write_bytes(path.read_bytes()[:size])

    return damage


def flip(name: str) -> Callable[[Path], None]:
    """Changes a bit in every 16th byte."""

    def damage(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        assert len(data) > 16
        for place in range(0, len(data), 16):
            data[place] ^= 1
        (folder / name).write_bytes(data)

    return damage


DATA = ".data-00000-of-00001"


@pytest.mark.parametrize(
    ("damage", "step", "told"),
    [
        (lambda folder: None, 60, []),
        (remove(".index"), 40, ["step-60 is missing"]),
        (remove(".index", DATA), 40, ["step-60 is missing"]),
        (remove(".index", DATA, steps=(60, 40)), 20, ["step-60 is missing", "step-40 is missing"]),
        (remove(DATA), 40, ["step-60 can't be read"]),
        (shorten(f"step-60{DATA}", 100), 40, ["step-60 can't be read"]),
        (shorten(f"step-60{DATA}", 0), 40, ["step-60 can't be read"]),
        (shorten("step-60.index", 0), 40, ["step-60 can't be read"]),
        (shorten("step-60.index", 100), 40, ["step-60 can't be read"]),
        (flip(f"step-60{DATA}"), 40, ["step-60 can't be read"]),
        (flip("step-60.index"), 40, ["step-60 can't be read"]),
        (shorten("checkpoint", 0), 60, []),
        (flip("checkpoint"), 60, []),
        (lambda folder: (folder / "checkpoint").unlink(), 60, []),
    ],
    ids=[
        *("whole", "index missing", "missing", "two missing", "data missing", "data cut"),
        *("data empty", "index empty", "index cut", "data flipped", "index flipped"),
        *("list empty", "list flipped", "list missing"),
    ],
)
def test_the_newest_whole_one_is_restored(
    folder: Path, damage: Callable[[Path], None], step: int, told: list[str]
):
    damage(folder)
    before = contents(folder)
    checkpoints, model = open_checkpoints(folder)
    warnings: list[str] = []
    assert checkpoints.restore(warn=warnings.append)
    assert len(warnings) == len(told)
    for warning, name in zip(warnings, told, strict=True):
        assert f"{folder}/{name}" in warning
        assert f"step {step}" in warnings[-1]
    for weight in model.weights:
        assert weight.numpy().min() == weight.numpy().max() == step
    assert {name: data for name, data in contents(folder).items() if name != "checkpoint"} == {
        name: data for name, data in before.items() if name != "checkpoint"
    }
    checkpoints.save(61)
    again, _ = open_checkpoints(folder)
    assert again.restore()
    assert again.newest_step == 61


def test_a_run_without_a_whole_checkpoint_does_not_start_anew(folder: Path):
    for step in STEPS:
        (folder / f"step-{step}.index").write_bytes(b"")
    before = contents(folder)
    checkpoints, _ = open_checkpoints(folder)
    sentence = (
        f"none of the checkpoints in {folder} can be read (steps 60, 40, 20): bring one of them "
        "back, or choose another run folder to begin anew"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        checkpoints.restore(warn=lambda _: None)
    assert contents(folder) == before


def test_a_run_whose_checkpoints_are_all_gone_does_not_start_anew(folder: Path):
    for path in folder.glob("step-*"):
        path.unlink()
    checkpoints, _ = open_checkpoints(folder)
    with pytest.raises(ValueError, match=f"^none of the checkpoints in {folder} can be read"):
        checkpoints.restore()


def test_no_checkpoint_is_nothing_to_tell_of(tmp_path: Path):
    checkpoints, _ = open_checkpoints(tmp_path / "checkpoints")
    warnings: list[str] = []
    assert not checkpoints.restore(warn=warnings.append)
    assert not warnings


def test_a_model_of_another_shape_is_no_damage(folder: Path):
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    optimizer = keras.optimizers.SGD()
    optimizer.build(model.trainable_variables)
    checkpoints = Checkpoints(
        str(folder), model=model, optimizer=optimizer, identity=IDENTITY, keep=3
    )
    with pytest.raises(ValueError, match="step-60 does not fit the model"):
        checkpoints.restore()
