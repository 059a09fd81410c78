"""SIGTERM and Ctrl-C, whenever they come."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from pipeline.distribution.stop_request import (
    STOPPED,
    StopRequest,
    hold_sigterm,
    keep_sigterm_handler,
)
from pipeline.train import main
from pipeline.training.run_log import last_step
from tests.support.processes import processes, wait_until

OPTIONS = (
    "--task=tests.support.tiny_task:StoppedTask",
    "--quiet",
    "--global-batch-size=8",
    "--evaluation-split=train",
    "--steps=200",
    "--steps-per-call=1",
)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_run_that_is_stopped_while_it_starts(
    directory: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
):
    before = signal.getsignal(signal.Signals[name])
    command = [str(directory), f"--run-dir={tmp_path}", *OPTIONS, f"--model.signal_name={name}"]
    assert main(command) == STOPPED
    assert "stopped at step 0: the same command goes on" in capsys.readouterr().err
    assert not (tmp_path / "log.jsonl").exists()
    assert signal.getsignal(signal.Signals[name]) == before


def test_a_run_in_a_thread_notes_no_signals(directory: Path, tmp_path: Path):
    """Python handles signals in the main thread alone, which is somebody else's."""
    task = "--task=tests.support.tiny_task:TinyTask"
    command = [str(directory), f"--run-dir={tmp_path}", *OPTIONS[1:], task, "--steps=2"]
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(main, command).result() == 0
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert last_step(tmp_path) == 2


def test_all_workers_stop_when_one_is_stopped_while_it_starts(directory: Path, tmp_path: Path):
    run_dir = tmp_path / "run"
    command = ["tests.support.train_worker", "1", str(directory), f"--run-dir={run_dir}", *OPTIONS]
    with processes(tmp_path / "processes", {"worker": [command] * 2}) as started:
        assert [each.wait() for each in started] == [STOPPED] * 2
    assert not (run_dir / "log.jsonl").exists()


def test_a_strategy_for_several_workers_leaves_sigterm_alone(tmp_path: Path):
    with processes(tmp_path / "process", {"worker": [["tests.support.sigterm_worker"]]}) as (
        worker,
    ):
        wait_until(worker.has_ended, [worker])
        assert worker.lines() == [{"meanwhile": True}, {"afterwards": True}]


def test_a_second_ctrl_c_ends_at_once(capfd: pytest.CaptureFixture[str]):
    with StopRequest() as stop:
        assert not stop.is_made
        signal.raise_signal(signal.SIGINT)
        assert stop.is_made
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) != signal.SIG_DFL
    assert capfd.readouterr().err == (
        "stopping after the steps under way; Ctrl-C again ends at once, without a checkpoint\n"
    )


def test_a_signal_that_is_held_comes_later():
    hold_sigterm()
    signal.raise_signal(signal.SIGTERM)
    with StopRequest() as stop:
        assert stop.is_made


def test_another_handler_is_replaced():
    with StopRequest() as stop:
        with keep_sigterm_handler():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_made
