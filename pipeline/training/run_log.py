"""The log of a training run as other processes read it: JSON lines, without TensorFlow."""

import json
from pathlib import Path
from typing import Any

LOG = "log.jsonl"
CHANGED = "changed"  # of a line with the options that change at its step


def read_log(run_dir: str | Path) -> list[dict[str, Any]]:
    """Reads the lines of a run's log that count; none if there is no log yet.

    Steps that were repeated after a kill appear once. Numbers that were not finite are None.
    """
    path = Path(run_dir, LOG)
    return log_lines(path.read_bytes()) if path.exists() else []


def log_lines(log: bytes) -> list[dict[str, Any]]:
    """Parses a log, as `read_log` does."""
    # The chief may be writing the last line.
    complete = log.rpartition(b"\n")[0].splitlines()
    kept: list[dict[str, Any]] = []
    for line in map(json.loads, complete):
        # A run that was killed at step 250 and went on from 200 has logged 201 to 250 twice: of
        # each, the later line counts. A line of changes replaces the one of an earlier start
        # from that step, and all behind it.
        if CHANGED in line:
            again = [CHANGED in other and other["step"] >= line["step"] for other in kept]
            if any(again):
                del kept[again.index(True) :]
        # The line of a step's loss comes before that of its evaluation.
        first_again = line["step"] if "loss" in line else line["step"] + 1
        while kept and kept[-1]["step"] >= first_again:
            kept.pop()
        kept.append(line)
    return kept


def last_step(run_dir: str | Path) -> int:
    """Returns the last step in a run's log, 0 if there is none."""
    return max((line["step"] for line in read_log(run_dir)), default=0)
