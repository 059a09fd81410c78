"""Commands that are killed while they run processes of their own: none of these stays behind."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import ROOT

_LIMIT_S = 100
SEARCH = (
    "--trials=1",
    "--space=learning_rate=log:1e-3..1e-1",
    "--task=tests.support.tiny_task:TinyTask",
    "--global-batch-size=8",
    "--evaluation-split=train",
)
# Answers no request, as a decoder that hangs.
HANGING = """
import time
from pathlib import Path
from beam_jobs.images.separate_process import serve_requests

def hang(folder):
    Path(folder, "asked").touch()
    time.sleep(1000)

serve_requests(lambda setting: hang)
"""
ASKING = """
import sys
from beam_jobs.images.separate_process import SeparateProcess
sys.path.insert(0, sys.argv[1])
SeparateProcess("hanging", None, task="hangs").ask(sys.argv[1], limit_s=1000)
"""


class MarkedProgram:
    """A program whose processes are found by a variable that all of them inherit."""

    def __init__(self, *arguments: str) -> None:
        self._mark = f"TILLROLL_TEST={uuid.uuid4()}"
        name, _, value = self._mark.partition("=")
        self._program = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", name: value},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def processes(self) -> set[int]:
        """Returns the ids of its processes."""
        marked = set()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                continue
            if self._mark.encode() in variables:
                marked.add(int(folder.name))
        return marked

    def kill_when(self, condition: Callable[[], bool]) -> None:
        """Kills its first process, and no other."""
        self._wait_until(lambda: condition() or self._program.poll() is not None)
        assert self._program.poll() is None, "it has ended by itself"
        self._program.kill()
        self._program.wait()

    def kill_with(self, count: int) -> None:
        """Kills its first process once there are so many."""
        self.kill_when(lambda: len(self.processes()) >= count)

    def wait_for_all(self) -> None:
        """Waits until all of its processes have ended, and kills them if they do not."""
        try:
            self._wait_until(lambda: not self.processes())
        finally:
            for process in self.processes():
                os.kill(process, 9)

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"still there: {self.processes()}"
            time.sleep(0.02)


# With a resource tracker of Python come 3 processes, with two workers and what they share 4.
@pytest.mark.parametrize("count", [2, 3])
def test_a_search_that_is_killed_while_it_checks_options(
    directory: Path, tmp_path: Path, count: int
):
    pytest.importorskip("tensorflow")
    pytest.importorskip("optuna")
    arguments = (str(directory), f"--search-dir={tmp_path}", *SEARCH)
    program = MarkedProgram("-m", "pipeline.search", *arguments)
    program.kill_with(count)
    program.wait_for_all()


@pytest.mark.parametrize("count", [2, 4])
def test_a_build_that_is_killed(table: Path, tmp_path: Path, count: int):
    pytest.importorskip("apache_beam")
    arguments = (f"--input={table}", f"--output={tmp_path / 'out'}", "--workers=2")
    program = MarkedProgram("-m", "beam_jobs.build", *arguments)
    program.kill_with(count)
    program.wait_for_all()


@pytest.mark.parametrize("count", [2, 4])
def test_a_check_that_is_killed(dataset: Path, count: int):
    program = MarkedProgram("-m", "beam_jobs.verify", str(dataset), "--workers=2")
    program.kill_with(count)
    program.wait_for_all()


def test_a_process_whose_user_is_killed_during_a_request(tmp_path: Path):
    pytest.importorskip("apache_beam")
    (tmp_path / "hanging.py").write_text(HANGING)
    program = MarkedProgram("-c", ASKING, str(tmp_path))
    program.kill_when((tmp_path / "asked").exists)
    program.wait_for_all()
