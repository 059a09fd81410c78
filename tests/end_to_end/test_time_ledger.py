"""The ledger of a run's time adds up to what a clock beside the run shows."""

import json
import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("prometheus_client")

from benchmarks.harness.addresses import free_port
from pipeline.train import main
from pipeline.training.ledger import CATEGORIES
from tests.support.processes import processes, wait_until

OPTIONS = (
    "--task=tests.support.tiny_task:TinyTask",
    "--global-batch-size=8",
    "--evaluation-split=train",
)


def time_lines(run_dir: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (run_dir / "log.jsonl").read_text().splitlines())
    return [line for line in lines if "time" in line]


def scraped(port: int) -> dict[str, float]:
    """Seconds by category; none while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
            text = response.read().decode()
    except urllib.error.URLError:
        return {}
    found = re.findall(r'^tillroll_run_seconds\{category="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {category: float(seconds) for category, seconds in found}


def test_it_adds_up_to_the_wall_time_of_a_run_that_was_killed(directory: Path, tmp_path: Path):
    run_dir = tmp_path / "run"
    port = free_port()
    command = [
        "pipeline.train",
        str(directory),
        f"--run-dir={run_dir}",
        *OPTIONS,
        "--quiet",
        "--steps=120",
        "--checkpoint-every=20",
        f"--prometheus-port={port}",
    ]
    with processes(tmp_path / "first", {"worker": [command]}) as started:
        began = time.time()  # the first fork of all waits for what it is forked from
        wait_until((run_dir / "checkpoints" / "step-40.index").exists, started)
        started[0].kill()
    killed = time.time()
    kept = [line for line in time_lines(run_dir) if line["step"] <= 20][-1]["time"]
    time.sleep(1)  # nothing runs
    started_again = time.time()
    with processes(tmp_path / "second", {"worker": [command]}) as started:
        wait_until(lambda: scraped(port).get("lost", 0) > 0, started)
        seen = scraped(port)
        wait_until(started[0].has_ended, started)
    last = time_lines(run_dir)[-1]
    assert last["step"] == 120
    assert last["ended"]
    seconds = last["time"]
    assert list(seconds) == list(CATEGORIES)
    # To the last line, which the file system has the time of: the end of Python comes behind it.
    wall = (run_dir / "log.jsonl").stat().st_mtime - began
    assert sum(seconds.values()) == pytest.approx(wall, rel=0.01)
    assert min(seconds.values()) > 0
    assert seconds["lost"] >= started_again - killed
    assert seconds["step"] >= kept["step"] > 0
    assert seconds["start"] > kept["start"] > 0
    assert seen.keys() == seconds.keys()
    assert all(seen[name] <= seconds[name] + 0.001 for name in CATEGORIES)


def test_a_run_says_what_its_time_was_spent_on(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    command = [str(directory), f"--run-dir={tmp_path}", *OPTIONS, "--steps=20"]
    sentence = r"^time: (\d+ min )?\d+ s: \d+% \w[\w ]*(, \d+% \w[\w ]*)*$"
    assert main(command) == 0
    assert re.search(sentence, capsys.readouterr().out, re.MULTILINE)
    lines = time_lines(tmp_path)
    assert main(command) == 0  # it was at its last step
    assert "time:" not in capsys.readouterr().out
    assert time_lines(tmp_path) == lines
