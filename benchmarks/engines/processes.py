"""Processes of a cluster: started together, ended by their numbers, never left behind."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

START_S = 90
# Packages that Flink and Spark reach into, which Java opens from version 17 on only when asked.
_OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.text",
    "java.time",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.util.concurrent.locks",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
OPENING = tuple(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED)


class ClusterError(RuntimeError):
    """A cluster can't be started; the message says why."""


@contextmanager
def started(
    commands: Mapping[str, Sequence[str]],
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Runs processes, each with a log of its name in `folder`, and kills those that are left.

    Args:
      commands: name to arguments.
      folder: folder of the logs.
      environment: variables besides those of this process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            with (folder / f"{name}.log").open("wb") as log:
                running[name] = subprocess.Popen(
                    list(command),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, **(environment or {})},
                )
        yield running
    finally:
        for process in running.values():
            kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a process with those that it has started."""
    with suppress(ProcessLookupError):  # it has ended by itself
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def await_start(
    running: Mapping[str, subprocess.Popen[bytes]], is_up: Callable[[], bool], folder: Path
) -> None:
    """Waits until a cluster answers.

    Raises:
      ClusterError: a process has ended, or the cluster does not answer in time.
    """
    deadline = time.monotonic() + START_S
    while not is_up():
        for name, process in running.items():
            if process.poll() is not None:
                log = (folder / f"{name}.log").read_text(errors="replace")[-2000:]
                raise ClusterError(f"{name} ended with {process.returncode}:\n{log}")
        if time.monotonic() > deadline:
            raise ClusterError(
                f"the cluster did not start in {START_S} s; its logs are in {folder}"
            )
        time.sleep(0.2)


def free_port() -> int:
    """Returns a port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
