"""A cluster some of whose processes are missing, or are lost: sentences and exit statuses."""

import signal
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from benchmarks.harness.addresses import reserved_addresses
from pipeline.distribution.stop_request import STOPPED
from tests.support.processes import Process, processes, wait_until

OPTIONS = (
    "--task=tests.support.tiny_task:TinyTask",
    "--quiet",
    "--global-batch-size=8",
    "--evaluation-split=train",
    "--steps-per-call=1",
)
STATUS = {signal.SIGTERM: STOPPED, signal.SIGINT: 128 + signal.SIGINT}


@pytest.mark.parametrize(
    ("kind", "index", "missing", "number"),
    [
        ("worker", 0, ["worker 1"], signal.SIGTERM),
        ("worker", 1, ["worker 0"], signal.SIGINT),
        ("chief", 0, ["worker 0", "ps 0"], signal.SIGTERM),
    ],
)
def test_a_process_that_waits_for_others_names_them_and_can_be_stopped(
    directory: Path, tmp_path: Path, kind: str, index: int, missing: list[str], number: int
):
    kinds = ["worker", "worker"] if kind == "worker" else ["chief", "worker", "ps"]
    with reserved_addresses(len(kinds)) as addresses:
        cluster: dict[str, list[str]] = {}
        for name, address in zip(kinds, addresses, strict=True):
            cluster.setdefault(name, []).append(address)
        task = {"cluster": cluster, "task": {"type": kind, "index": index}}
        command = ["pipeline.train", str(directory), f"--run-dir={tmp_path / 'run'}", *OPTIONS]
        waiting = Process(command, tmp_path / "process", task)
        try:
            wait_until(lambda: "waiting for" in waiting.errors(), [waiting])
            waiting.send_signal(number)
            assert waiting.wait() == STATUS[signal.Signals(number)]
        finally:
            waiting.kill()
        errors = waiting.errors()
        for name in missing:
            kind, position = name.split()
            address = cluster[kind][int(position)]
            assert f"{name} at {address} (Connection refused)" in errors
    assert f"stopped by {signal.Signals(number).name}: the same command goes on\n" in errors
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_a_worker_that_waits_in_cpp_can_be_stopped(directory: Path, tmp_path: Path):
    """Its peer has joined the cluster, and never takes part in the first collective operation."""
    command = ["pipeline.train", str(directory), f"--run-dir={tmp_path / 'run'}", *OPTIONS]
    commands = {"worker": [command, ["tests.support.idle_worker"]]}
    with processes(tmp_path / "processes", commands) as (worker, idle):
        wait_until(lambda: idle.lines() == [{}], [worker, idle])
        assert worker.terminate() == STOPPED
        assert "stopped by SIGTERM: the same command goes on\n" in worker.errors()


@pytest.mark.parametrize("killed", [0, 1])
def test_a_worker_that_is_killed_is_named_by_the_other(
    directory: Path, tmp_path: Path, killed: int
):
    run_dir = tmp_path / "run"
    command = ["pipeline.train", str(directory), f"--run-dir={run_dir}", "--steps=100000", *OPTIONS]
    with processes(tmp_path / "processes", {"worker": [command] * 2}) as started:
        wait_until((run_dir / "log.jsonl").exists, started)
        started[killed].kill()
        other = started[1 - killed]
        assert other.wait() == STOPPED
        last = other.errors().splitlines()[-1]
    assert last.startswith(f"another worker was lost (worker {killed} at 127.0.0.1:")
    assert last.endswith(
        "start it again if it does not run, and the same command goes on from the last checkpoint"
    )
    assert "Traceback" not in other.errors()


def test_a_chief_that_has_lost_all_workers_can_be_stopped(directory: Path, tmp_path: Path):
    run_dir = tmp_path / "run"
    command = ["pipeline.train", str(directory), f"--run-dir={run_dir}", "--steps=100000", *OPTIONS]
    commands = {name: [command] for name in ("chief", "worker", "ps")}
    with processes(tmp_path / "processes", commands) as (chief, worker, server):
        wait_until((run_dir / "log.jsonl").exists, [chief, worker, server])
        worker.kill()
        assert chief.terminate() == STOPPED
        last = chief.errors().splitlines()[-1]
    assert last.startswith("stopped by SIGTERM while steps wait for worker 0 at 127.0.0.1:")
    assert last.endswith(": the same command goes on")
