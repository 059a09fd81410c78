"""One trainer at a time in a run folder."""

import errno
import fcntl
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from pipeline.distribution.stop_request import STOPPED
from pipeline.train import main
from pipeline.training.run_lock import LOCK, RunFolderInUseError, RunLock
from tests.support.dataset_factory import write_dataset
from tests.support.receipts import contents

HOLDER = """import sys
from pipeline.training.run_lock import RunLock
lock = RunLock(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


def test_another_process_is_named_and_its_end_releases_the_lock(tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        sentence = (
            f"process {holder.pid} on {socket.gethostname()} trains in run folder {tmp_path}: wait "
            "until it ends, or choose another run folder"
        )
        for _ in range(2):  # a refusal leaves the lock and its file as they are
            with pytest.raises(RunFolderInUseError, match=f"^{re.escape(sentence)}$"):
                RunLock(str(tmp_path))
        holder.kill()
        holder.wait()
        with RunLock(str(tmp_path)) as lock, RunLock(str(tmp_path), name="other.lock"):
            assert lock.is_held
            assert (tmp_path / LOCK).read_text().startswith(f"process {os.getpid()} on ")


def test_a_released_lock_is_free(tmp_path: Path):
    for _ in range(2):
        with RunLock(str(tmp_path)), pytest.raises(RunFolderInUseError):
            RunLock(str(tmp_path))


def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with RunLock(str(tmp_path)) as lock:
        assert not lock.is_held
    assert capsys.readouterr().err == (
        f"run folder {tmp_path} can't be locked (Operation not supported): make sure that no other "
        "trainer uses it\n"
    )


def test_a_second_trainer_leaves_the_run_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    directory, run_dir = write_dataset(tmp_path / "receipts"), tmp_path / "run"
    command = [
        str(directory),
        f"--run-dir={run_dir}",
        "--task=tests.support.tiny_task:TinyTask",
        "--quiet",
        "--global-batch-size=8",
        "--evaluation-split=train",
        "--steps=2",
    ]
    assert main(command) == 0
    with RunLock(str(run_dir)):
        before = contents(run_dir)
        assert main([*command, "--steps=4"]) == STOPPED
        assert f" trains in run folder {run_dir}: wait until it ends" in capsys.readouterr().err
        assert contents(run_dir) == before
    assert main([*command, "--steps=4"]) == 0
