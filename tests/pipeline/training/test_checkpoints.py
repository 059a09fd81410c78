"""The checkpoint that a run goes on from when some are missing or damaged."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

import keras

from pipeline.training.checkpoint_files import written_steps
from pipeline.training.checkpoints import Checkpoints
from pipeline.training.run_identity import RunIdentity
from tests.support.receipts import contents

STEPS = (20, 40, 60)
IDENTITY = RunIdentity(stream={"seed": 0}, updates={})


def open_checkpoints(
    folder: Path, *, keep: int = 3, warn: Callable[[str], None] = lambda _: None
) -> tuple[Checkpoints, keras.Model]:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    optimizer = keras.optimizers.SGD()
    optimizer.build(model.trainable_variables)
    checkpoints = Checkpoints(
        str(folder), model=model, optimizer=optimizer, identity=IDENTITY, keep=keep, warn=warn
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


def write_list(text: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / "checkpoint").write_bytes(text)

    return damage


DATA = ".data-00000-of-00001"
DAMAGED = "is damaged ({} was changed, cut short or removed): the run goes on from step 40"
DAMAGED_DATA, DAMAGED_INDEX = DAMAGED.format(f"step-60{DATA}"), DAMAGED.format("step-60.index")
UNREADABLE_LIST = "checkpoint can't be read: it is made again from the files beside it"


@pytest.mark.parametrize(
    ("damage", "step", "told"),
    [
        (lambda folder: None, 60, []),
        (remove(".index"), 40, ["step-60 is missing"]),
        (remove(".index", DATA), 40, ["step-60 is missing"]),
        (remove(".index", DATA, steps=(60, 40)), 20, ["step-60 is missing", "step-40 is missing"]),
        (remove(DATA), 40, [f"step-60 {DAMAGED_DATA}"]),
        (shorten(f"step-60{DATA}", 100), 40, [f"step-60 {DAMAGED_DATA}"]),
        (shorten(f"step-60{DATA}", 0), 40, [f"step-60 {DAMAGED_DATA}"]),
        (shorten("step-60.index", 0), 40, [f"step-60 {DAMAGED_INDEX}"]),
        (shorten("step-60.index", 100), 40, [f"step-60 {DAMAGED_INDEX}"]),
        (flip(f"step-60{DATA}"), 40, [f"step-60 {DAMAGED_DATA}"]),
        (flip("step-60.index"), 40, [f"step-60 {DAMAGED_INDEX}"]),
        (shorten("checkpoint", 0), 60, [UNREADABLE_LIST]),
        (flip("checkpoint"), 60, [UNREADABLE_LIST]),
        (write_list(b"\xff\xfe\x00"), 60, [UNREADABLE_LIST]),
        (write_list(b'model_checkpoint_path: "step'), 60, [UNREADABLE_LIST]),
        (write_list(b'model_checkpoint_path: "model"\n'), 60, [UNREADABLE_LIST]),
        (lambda folder: (folder / "checkpoint").unlink(), 60, []),
    ],
    ids=[
        "whole",
        "index missing",
        "missing",
        "two missing",
        "data missing",
        "data cut",
        "data empty",
        "index empty",
        "index cut",
        "data flipped",
        "index flipped",
        "list empty",
        "list flipped",
        "list of bytes",
        "list cut",
        "list of others",
        "list missing",
    ],
)
def test_the_newest_whole_one_is_restored(
    folder: Path, damage: Callable[[Path], None], step: int, told: list[str]
):
    damage(folder)
    before = contents(folder)
    warnings: list[str] = []
    checkpoints, model = open_checkpoints(folder, warn=warnings.append)
    assert checkpoints.restore()
    assert len(warnings) == len(told)
    for warning, name in zip(warnings, told, strict=True):
        assert f"{folder}/{name}" in warning
        assert f"step {step}" in warnings[-1] or name == UNREADABLE_LIST
    for weight in model.weights:
        assert weight.numpy().min() == weight.numpy().max() == step
    assert {name: data for name, data in contents(folder).items() if name != "checkpoint"} == {
        name: data for name, data in before.items() if name != "checkpoint"
    }
    checkpoints.save(61)
    again, _ = open_checkpoints(folder)
    assert again.restore()
    assert again.newest_step == 61


@pytest.mark.parametrize("is_relative", [False, True])
def test_checkpoints_beside_an_unreadable_list_are_not_kept_for_ever(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_relative: bool
):
    write_list(b"")(folder)
    monkeypatch.chdir(folder.parent)
    checkpoints, _ = open_checkpoints(Path(folder.name) if is_relative else folder)
    checkpoints.save(61)
    assert written_steps(str(folder)) == {40, 60, 61}


def test_a_checkpoint_beside_the_list_is_not_kept_for_ever(folder: Path):
    before = (folder / "checkpoint").read_bytes()
    checkpoints, _ = open_checkpoints(folder)
    checkpoints.save(61)
    write_list(before)(folder)  # as a kill leaves it between the checkpoint and the list
    checkpoints, _ = open_checkpoints(folder)
    assert checkpoints.restore()
    assert checkpoints.newest_step == 61
    for step in (62, 63):
        checkpoints.save(step)
    assert written_steps(str(folder)) == {61, 62, 63}


def test_parts_of_a_checkpoint_are_deleted(folder: Path):
    before = contents(folder)
    parts = [
        f"{name}part-00000-of-00001{suffix}"
        for name in ("step-80_temp/", "step-60.")  # of a local folder, of a store
        for suffix in (".index", DATA)
    ]
    (folder / "step-80_temp").mkdir()
    for name in parts:
        (folder / name).write_bytes(b"part")
    checkpoints, _ = open_checkpoints(folder)
    assert contents(folder) == before
    assert not (folder / "step-80_temp").exists()
    assert checkpoints.restore()


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
        checkpoints.restore()
    assert contents(folder) == before


def test_a_run_whose_checkpoints_are_all_gone_does_not_start_anew(folder: Path):
    for path in folder.glob("step-*"):
        path.unlink()
    checkpoints, _ = open_checkpoints(folder)
    with pytest.raises(ValueError, match=f"^none of the checkpoints in {folder} can be read"):
        checkpoints.restore()


def test_no_checkpoint_is_nothing_to_tell_of(tmp_path: Path):
    warnings: list[str] = []
    checkpoints, _ = open_checkpoints(tmp_path / "checkpoints", warn=warnings.append)
    assert not checkpoints.restore()
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
