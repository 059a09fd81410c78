"""A disk that is full: a sentence instead of a traceback. /dev/full is one that always is."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.train import FAILED, main
from pipeline.training.checkpoints import Checkpoints
from pipeline.training.disk_full import disk_full_reason
from pipeline.training.run_directory import RunFolder
from tests.support.dataset_factory import write_dataset

pytestmark = pytest.mark.slow


def write_text(*_: Any) -> None:
    Path("/dev/full").write_text("a line\n")


def write_tensor(*_: Any) -> None:
    with tf.io.gfile.GFile("/dev/full", "w") as file:
        file.write("a tensor")


@pytest.mark.parametrize("write", [write_text, write_tensor])
def test_a_full_disk_is_told_from_other_errors(write: Any):
    with pytest.raises((OSError, tf.errors.OpError)) as raised:
        write()
    assert disk_full_reason(raised.value) == "No space left on device"
    assert not disk_full_reason(FileNotFoundError(2, "No such file or directory"))
    assert not disk_full_reason(tf.errors.DataLossError(None, None, "checksum does not match"))


@pytest.mark.parametrize(
    ("owner", "method", "write"),
    [(RunFolder, "_append", write_text), (Checkpoints, "save", write_tensor)],
    ids=["log", "checkpoint"],
)
def test_the_run_tells_what_to_do(
    owner: type,
    method: str,
    write: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    command = [
        str(write_dataset(tmp_path / "receipts")),
        f"--run-dir={tmp_path / 'run'}",
        "--quiet",
        "--task=tests.support.tiny_task:TinyTask",
        "--global-batch-size=8",
        "--steps=2",
        "--evaluation-split=train",
    ]
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, write)
        assert main(command) == FAILED
    error = capsys.readouterr().err
    assert error.startswith(
        f"the disk of run folder {tmp_path / 'run'} is full (No space left on device), "
    )
    assert error.endswith(
        "), and there is no checkpoint yet: make room, and run the same command again to go on\n"
    )
    assert main(command) == 0
