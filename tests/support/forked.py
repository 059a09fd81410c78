"""Programs that use TensorFlow or Beam, forked from a process that has imported both.

A program needs four seconds of a core to import TensorFlow and Keras, two to import Beam, and tests
start some three hundred. Python's fork server imports them once for each process of pytest. It has
no thread of its own and has run no operation of TensorFlow, so that a fork of it is like a program
that has just imported both.
"""

import itertools
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CONTEXT = multiprocessing.get_context("forkserver")
# Programs are optimized as little as the process that starts them.
_PLUGINS = {"tests.support.unoptimized"} & sys.modules.keys()
# The first two import all that a program imports itself; what is not installed is left out.
CONTEXT.set_forkserver_preload(
    ["beam_jobs.build", "pipeline.train", *_PLUGINS, "tests.support.frozen"]
)


class ForkedProgram:
    """`python -m MODULE ARGUMENT…` as a fork; it has the methods of `subprocess.Popen`.

    Args:
      arguments: the module, and its arguments.
      environment: its variables, those of this process if None.
      directory: where it works.
      output: file to which its output is appended.
      errors: file to which its messages are appended.
      has_session: whether it gets a session of its own, to be killed with all of its processes.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path = ROOT,
        output: Path = Path(os.devnull),
        errors: Path = Path(os.devnull),
        has_session: bool = False,
    ) -> None:
        self._arguments = list(arguments)
        variables = dict(os.environ if environment is None else environment)
        work = (self._arguments, variables, directory, output, errors, has_session)
        self._process = CONTEXT.Process(target=_run, args=work)
        self._process.start()
        with suppress(ProcessLookupError):  # it has ended already
            while has_session and os.getsid(self.pid) != self.pid:
                time.sleep(0.001)

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status, the negative number of the signal that killed it, or None."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end, and returns the exit status.

        Raises:
          TimeoutExpired: it takes longer than so many seconds.
        """
        self._process.join(timeout)
        status = self._process.exitcode
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self._arguments, timeout)
        return status

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended: its process id may be another's by then."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def kill_session(self) -> None:
        """SIGKILL, to all processes of its session."""
        with suppress(ProcessLookupError):  # it has just ended
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()


def popen(folder: Path) -> Callable[..., Any]:
    """Returns what takes the place of `subprocess.Popen` for commands that begin with `python -m`.

    Args:
      folder: where the output of the programs goes.
    """
    numbers = itertools.count()

    class Popen(ForkedProgram):
        def __init__(self, command: Sequence[str], *, env: Mapping[str, str], **_: Any) -> None:
            files = [folder / f"{next(numbers)}-{name}" for name in ("output", "errors")]
            output, errors = files
            arguments = command[command.index("-m") + 1 :]
            super().__init__(
                arguments, environment=env, directory=Path.cwd(), output=output, errors=errors
            )
            self._files = files

        def communicate(self, timeout: float | None = None) -> tuple[str, str]:
            self.wait(timeout)
            output, errors = (path.read_text() for path in self._files)
            return output, errors

    return Popen


def _run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    output: Path,
    errors: Path,
    has_session: bool,
) -> None:
    """Becomes the program, in the forked process."""
    if has_session:
        os.setsid()
    for path, number in ((output, 1), (errors, 2)):
        with path.open("a") as file:
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    module, *sys.argv[1:] = arguments
    sys.modules.pop(module, None)  # runpy warns of a module that was imported before
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def kill_when(
    arguments: Sequence[str], reached: Callable[[], bool], *, look_every_s: float = 0.001
) -> bool:
    """Runs a program and kills its session once something is reached; returns whether it did."""
    process = ForkedProgram(arguments, has_session=True)
    while process.poll() is None and not reached():
        time.sleep(look_every_s)
    ran = process.poll() is None
    if ran:
        process.kill_session()
    return ran
