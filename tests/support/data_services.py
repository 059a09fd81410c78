"""Data services of the tests, each a process of its own."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness.addresses import SHARED_PORTS, reserved_addresses
from tests.support.forked import ForkedProgram

_TIME_LIMIT_S = 100


class Service:
    """A running `pipeline.data_service`, at an address that stays the same when it is restarted."""

    def __init__(self, directory: Path, folder: Path, address: str, worker_address: str) -> None:
        self.address = address
        self._worker_address, self._directory, self._folder = worker_address, directory, folder
        folder.mkdir()
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it listens."""
        output = self._folder / "output"
        output.write_text("")
        self._program = ForkedProgram(
            [
                *("pipeline.data_service", str(self._directory)),
                f"--port={self.address.rpartition(':')[2]}",
                f"--worker-port={self._worker_address.rpartition(':')[2]}",
            ],
            environment={**os.environ, **SHARED_PORTS, "TF_CPP_MIN_LOG_LEVEL": "3"},
            output=output,
            errors=self._folder / "errors",
        )
        deadline = time.monotonic() + _TIME_LIMIT_S
        while not output.read_text().endswith(f"listens at {self.address}\n"):
            assert self._program.poll() is None, (self._folder / "errors").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def kill(self) -> None:
        """Kills it."""
        self._program.kill()
        self._program.wait()


@contextlib.contextmanager
def data_services(directory: Path, folder: Path, count: int) -> Iterator[list[Service]]:
    """Runs data services of a dataset directory, and kills them at the end."""
    started: list[Service] = []
    with reserved_addresses(2 * count) as addresses:
        try:
            for number in range(count):
                own = addresses[2 * number : 2 * number + 2]
                started.append(Service(directory, folder / f"service-{number}", *own))
            yield started
        finally:
            for each in started:
                each.kill()
