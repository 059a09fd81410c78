"""The log of a run that was killed and went on."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from pipeline.training.ledger import CATEGORIES, Ledger
from pipeline.training.run_directory import LOG, OPTIONS, TENSORBOARD, RunFolder
from pipeline.training.run_identity import Change


def write(folder: RunFolder, step: int, *, evaluated: bool = False) -> None:
    folder.log(step, {"loss": step / 10})
    if evaluated:
        folder.log(step, {"validation/loss": step / 20})


def kept(folder: RunFolder) -> list[tuple[float, list[str]]]:
    return [(line["step"], [name for name in line if name != "step"]) for line in folder.lines()]


def test_steps_taken_again_count_once(tmp_path: Path):
    """A run that is killed behind a checkpoint evaluates the same steps twice."""
    folder = RunFolder(str(tmp_path))
    for step in (10, 20, 30):
        write(folder, step, evaluated=True)
    for step, evaluated in ((30, True), (40, False)):
        write(folder, step, evaluated=evaluated)
    whole = [(step, [name]) for step in (10, 20, 30) for name in ("loss", "validation/loss")]
    assert kept(folder) == [*whole, (40, ["loss"])]
    write(folder, 20)
    assert kept(folder) == [*whole[:2], (20, ["loss"])]


def test_a_line_that_a_kill_has_cut_is_left_out_for_good(tmp_path: Path):
    write(RunFolder(str(tmp_path)), 10, evaluated=True)
    log = tmp_path / LOG
    log.write_text(log.read_text() + '{"step": 20, "lo')
    other = RunFolder(str(tmp_path), is_chief=False)  # another worker, which writes nothing
    assert len(kept(other)) == 2
    folder = RunFolder(str(tmp_path))
    write(folder, 20)
    assert [step for step, _ in kept(folder)] == [10, 10, 20]


@pytest.mark.parametrize("path", ["az://account/bucket/run", "hdfs://run", "s4://bucket/run"])
def test_not_every_store_can_hold_a_run_folder(path: str):
    scheme = path.partition(":")[0]
    sentence = (
        f"run folder '{path}' can't lie in {scheme}://: choose a folder of this machine, or one in "
        "gs:// or s3://"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        RunFolder(path)


def test_a_file_can_be_no_run_folder(tmp_path: Path):
    (tmp_path / "file").touch()
    for path, reason in (("file", "File exists"), ("file/run", "Not a directory")):
        sentence = (
            f"run folder '{tmp_path}/{path}' can't be written to ({reason}): choose another one"
        )
        with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
            RunFolder(f"{tmp_path}/{path}")


def test_steps_taken_again_come_once_in_tensorboard(tmp_path: Path):
    for step in (0, 2):
        with RunFolder(str(tmp_path)) as folder:
            folder.begin(step)
            for each in range(step + 1, step + 5):
                folder.log(each, {"loss": step / 10})
    events = EventAccumulator(str(tmp_path / TENSORBOARD))
    events.Reload()
    assert [each.step for each in events.Tensors("training/loss")] == [1, 2, 3, 4, 5, 6]


def test_changes_that_came_to_no_checkpoint_are_not_kept(tmp_path: Path):
    """Starts from step 20, each of which is killed: some with another split, then some without."""

    def start(*changes: Change, loss: float | None = None) -> list[dict[str, Any]]:
        """Returns the log's changes; `loss` is of an evaluation of step 20 that is made up for."""
        with RunFolder(str(tmp_path)) as folder:
            folder.log_changes(20, changes)
            told = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
            if loss is not None:
                folder.log(20, {"validation/loss": loss})
            write(folder, 30)
        return [line for line in told if "changed" in line]

    other_split = Change("evaluation_split", "validation", "train")
    line = {"step": 20, "changed": {"evaluation_split": ["validation", "train"]}}
    with RunFolder(str(tmp_path)) as folder:
        for step in (10, 20):
            write(folder, step, evaluated=True)
        before = folder.evaluations()
    assert start(other_split) == [line]
    assert folder.evaluations() == {}
    assert start(other_split, loss=7.0) == [line]
    assert start(other_split) == [line]
    assert folder.evaluations() == {20: 7.0}
    assert start() == [line, {"step": 20, "changed": {}}]
    assert folder.evaluations() == before
    assert [line["step"] for line in folder.lines()] == [10, 10, 20, 20, 30]
    assert start() == [line, {"step": 20, "changed": {}}]
    assert start(Change("steps", 30, 40)) == [
        line,
        {"step": 20, "changed": {}},
        {"step": 20, "changed": {"steps": [30, 40]}},
    ]
    assert folder.evaluations() == before


class _Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_time_of_earlier_processes(tmp_path: Path):
    """A run that is killed behind step 20, then comes to its end, then gets more steps."""

    def process(began: float, first_step: int, *steps: int, ended: bool = False) -> dict[str, Any]:
        """A process that starts for 5 s, and takes 10 s for each of its checkpoints."""
        clock = _Clock(began + 5)
        ledger = Ledger(began=began, clock=clock)
        with RunFolder(str(tmp_path)) as folder:
            folder.begin(first_step)
            folder.carry_on(first_step, ledger)
            folder.log_time(first_step, ledger)
            for step in steps:
                with ledger.steps():
                    clock.now += 10
                write(folder, step)
                folder.log_time(step, ledger, ended=ended and step == steps[-1])
        return json.loads((tmp_path / LOG).read_text().splitlines()[-1])

    def line(number: int, at: float, **seconds: float) -> dict[str, Any]:
        zeros = dict.fromkeys(CATEGORIES, 0.0)
        return {"step": number, "time": {**zeros, **seconds}, "at": at}

    assert process(1000, 0, 10, 20, 30) == line(30, 1035, start=5, step=30)
    # The checkpoint of step 30 is damaged: 10 s of steps and 65 s without a process are lost.
    assert process(1100, 20, 30) == line(30, 1115, start=10, step=30, lost=75)
    # The next one is killed before a checkpoint.
    assert process(1200, 30) == line(30, 1205, start=15, step=30, lost=160)
    assert process(1300, 30, 40, ended=True) == {
        **line(40, 1315, start=20, step=40, lost=255),
        "ended": True,
    }
    # Nothing is lost while a run is at its end.
    assert process(9000, 40, 50) == line(50, 9015, start=25, step=50, lost=255)
    folder = RunFolder(str(tmp_path), is_chief=False)
    assert [line["step"] for line in folder.lines()] == [10, 20, 30, 40, 50]
    events = EventAccumulator(str(tmp_path / TENSORBOARD))
    events.Reload()
    tags = events.Tags()["tensors"]
    assert {f"time/{category}" for category in CATEGORIES} <= set(tags)


WHOLE_OPTIONS = {"data_dir": "data", "task": "a:B", "model": {}, "init_from": None}


def test_options_of_the_last_command(tmp_path: Path):
    folder = RunFolder(str(tmp_path))
    assert folder.read_options() == {}
    folder.write_options(WHOLE_OPTIONS)
    assert folder.read_options() == WHOLE_OPTIONS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{", "JSONDecodeError"),
        (b"", "JSONDecodeError"),
        (b"\0" * 40, "Error"),
        (b"[1]", "TypeError"),
        (b"{}", "KeyError('data_dir')"),
        (json.dumps({**WHOLE_OPTIONS, "model": None}).encode(), "(model)"),
    ],
)
def test_damaged_options_are_named(tmp_path: Path, text: bytes, reason: str):
    (tmp_path / OPTIONS).write_bytes(text)
    sentence = rf"{tmp_path}/options.json is damaged .*: pipeline.train writes it anew when"
    with pytest.raises(ValueError, match=sentence) as raised:
        RunFolder(str(tmp_path), is_chief=False).read_options()
    assert reason in str(raised.value)
