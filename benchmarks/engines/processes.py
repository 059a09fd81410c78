"""Processes of a cluster: started together, found by a mark, ended by their numbers."""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

_START_S = 90
# In the environment of each process of a cluster, and so of all that these start.
_MARK = "TILLROLL_CLUSTER"


class ClusterError(RuntimeError):
    """A cluster can't be started; the message says why."""


class Processes:
    """Processes with one mark, each with a log of its name.

    Attributes:
      folder: where the logs are.
      started: name to process, of those that were started here.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.started: dict[str, subprocess.Popen[bytes]] = {}
        self._mark = uuid.uuid4().hex
        self._environment = {**os.environ, **environment, _MARK: self._mark}

    def start(self, name: str, command: Sequence[str]) -> None:
        """Starts a process; one of the same name must have ended."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.started[name] = subprocess.Popen(
                list(command),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self._environment,
            )

    def all(self) -> list[psutil.Process]:
        """Returns all processes that run, with those that others of them have started."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):  # it has just ended, or belongs to somebody else
                if process.environ().get(_MARK) == self._mark:
                    found.append(process)
        return found

    def matching(self, text: str) -> list[psutil.Process]:
        """Returns the processes whose command line has a text."""
        found = []
        for process in self.all():
            with suppress(psutil.Error):
                if text in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def await_start(self, is_up: Callable[[], bool]) -> None:
        """Waits until a cluster answers.

        Raises:
          ClusterError: a process has ended, or the cluster does not answer in time.
        """
        deadline = time.monotonic() + _START_S
        while not is_up():
            for name, process in self.started.items():
                if process.poll() is not None:
                    log = (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]
                    raise ClusterError(f"{name} ended with {process.returncode}:\n{log}")
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the cluster did not start in {_START_S} s; its logs are in {self.folder}"
                )
            time.sleep(0.2)

    def end(self) -> None:
        """Kills all processes."""
        while running := self.all():  # one may have started another meanwhile
            for process in running:
                with suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)
            psutil.wait_procs(running, timeout=1)
        for process in self.started.values():
            process.wait()


@contextmanager
def running(folder: Path, **environment: str) -> Iterator[Processes]:
    """Yields a set of processes, whose logs come into a folder, and ends them.

    Args:
      folder: made if need be.
      environment: variables besides those of this process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    processes = Processes(folder, environment)
    try:
        yield processes
    finally:
        processes.end()
