"""Programs of the tests as real processes: started together, watched, and never left behind."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.addresses import SHARED_PORTS, reserved_addresses
from tests.support.forked import ROOT, ForkedProgram

TIME_LIMIT_S = 200


class Process:
    """A program, and the JSON lines that it has printed so far."""

    def __init__(self, arguments: Sequence[str], folder: Path, task: Mapping[str, Any]) -> None:
        self._arguments, self._task = arguments, task
        folder.mkdir(parents=True)
        self._output, self._errors = folder / "output", folder / "errors"
        self._output.touch()
        self._errors.touch()
        quiet = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        self._process = ForkedProgram(
            arguments,
            environment={**os.environ, **quiet, **SHARED_PORTS, "TF_CONFIG": json.dumps(task)},
            directory=ROOT,
            output=self._output,
            errors=self._errors,
        )

    def again(self, folder: Path, *options: str) -> "Process":
        """Starts it anew, as the same task of its cluster, with further options."""
        return Process([*self._arguments, *options], folder, self._task)

    def lines(self) -> list[dict[str, Any]]:
        """Lines that it has printed; the last line may be cut short where it was killed."""
        lines = self._output.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def has_ended(self) -> bool:
        """Returns whether it has ended.

        Raises:
          AssertionError: it has failed.
        """
        status = self._process.poll()
        assert not status, f"a process ended with {status}:\n{self.errors()[-4000:]}"
        return status is not None

    def errors(self) -> str:
        """Text that it has written to standard error."""
        return self._errors.read_text()

    def send_signal(self, number: int) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    def terminate(self) -> int:
        """SIGTERM; returns the exit status."""
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """The exit status, once it has ended."""
        return self._process.wait(TIME_LIMIT_S)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()


def run_python(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs Python in the root of the repository until it ends.

    Args:
      arguments: those of the command `python`.
      environment: all variables that it gets, those of this process if None.

    Raises:
      AssertionError: it has failed.
    """
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def own_lines(errors: str) -> list[str]:
    """Lines of standard error but those of TensorFlow 2.21.

    It logs in C++ on which processor it is, whatever level it is told.
    """
    native = re.compile(r"WARNING: All log messages before absl|I0000 ")
    return [line for line in errors.splitlines() if not native.match(line)]


@contextlib.contextmanager
def processes(folder: Path, commands: Mapping[str, Sequence[Sequence[str]]]) -> Iterator[Any]:
    """Runs a process for each command, and kills at the end those that still run.

    Args:
      folder: where their output goes, not yet there.
      commands: a list for each type of task in TF_CONFIG: arguments of `python -m`.
    """
    started: list[Process] = []
    with reserved_addresses(sum(map(len, commands.values()))) as reserved:
        addresses = iter(reserved)
        cluster = {kind: [next(addresses) for _ in group] for kind, group in commands.items()}
        try:
            for kind, group in commands.items():
                for index, command in enumerate(group):
                    task = {"cluster": cluster, "task": {"type": kind, "index": index}}
                    started.append(Process(command, folder / f"{kind}-{index}", task))
            yield started
        finally:
            for each in started:
                each.kill()


def single(folder: Path, *command: str) -> list[dict[str, Any]]:
    """Runs a program outside of any cluster, and returns what it prints."""
    started = Process(command, folder, {})
    try:
        wait_until(started.has_ended, [started])
    finally:
        started.kill()
    return started.lines()


def wait_until(condition: Callable[[], bool], started: Sequence[Process]) -> None:
    """Waits for a condition.

    Raises:
      AssertionError: a process has failed, or it takes too long.
    """
    deadline = time.monotonic() + TIME_LIMIT_S
    while not condition():
        for each in started:
            each.has_ended()
        assert time.monotonic() < deadline, f"nothing came of it within {TIME_LIMIT_S} s"
        time.sleep(0.02)
