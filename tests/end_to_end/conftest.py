"""Fixtures of commands that run from end to end."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.grown import LABELS, LAYOUTS, table_of
from tests.support.receipts import read_table, write_receipts


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """Rows of 65 receipts, most of 8 shops, with mixed layouts of which "aral" comes late."""
    table = write_receipts(tmp_path_factory.mktemp("rows"), LAYOUTS)
    rows = read_table(table)
    for number, row in enumerate(rows):
        row["image"] = str(table.parent / row["image"])
        row["group"] = f"shop-{number % 12}" if number % 3 else ""
    mixed = [rows[number * 23 % len(rows)] for number in range(len(rows))]
    return sorted(mixed, key=lambda row: row["layout"] == "aral")


@pytest.fixture(scope="session")
def grown(rows: list[dict], build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of three versions; its parts overlap, and the last has a duplicate of the first."""
    folder = tmp_path_factory.mktemp("grown")
    parts = (rows[:30], rows[25:50], [*rows[50:], {**rows[0], "id": "twin"}])
    for number, part in enumerate(parts):
        table = table_of(folder, f"part-{number}", part)
        options = ("--append",) if number else LABELS
        assert build(table, folder / "out", "--shards=2", *options) == 0
    return folder / "out"


@pytest.fixture(scope="session")
def job_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A portable job server, which runs jobs in the process that submits them."""
    folder = tmp_path_factory.mktemp("job-server")
    port_file = folder / "port"
    module = "apache_beam.runners.portability.local_job_service_main"
    server = subprocess.Popen(
        [sys.executable, "-m", module, "--port_file", str(port_file)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not (port_file.exists() and port_file.read_text()):
        assert server.poll() is None, "the job server has died"
        assert time.monotonic() < deadline, "the job server does not start"
        time.sleep(0.1)
    yield f"localhost:{port_file.read_text()}"
    server.send_signal(signal.SIGTERM)
    server.wait(timeout=30)
