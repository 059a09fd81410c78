"""The log of a training run as other processes read it: JSON lines, without TensorFlow."""

import json
from pathlib import Path
from typing import Any

LOG = "log.jsonl"
CHANGED = "changed"  # of a line with the options that change at its step
TIME = "time"  # of a line with what the run's time was spent on


def read_log(run_dir: str | Path) -> list[dict[str, Any]]:
    """Reads the lines of a run's log that count; none if there is no log yet.

    Steps that were repeated after a kill appear once. Numbers that were not finite are None. Lines
    that can't be read are left out, see `unreadable_lines`.
    """
    path = Path(run_dir, LOG)
    return log_lines(path.read_bytes()) if path.exists() else []


def log_lines(log: bytes) -> list[dict[str, Any]]:
    """Parses a log, as `read_log` does."""
    kept: list[dict[str, Any]] = []
    for line in filter(None, map(_parse, _complete_lines(log))):
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


def unreadable_lines(log: bytes) -> list[int]:
    """Numbers, from 1 on, of the lines that can't be read, as a power cut may leave them."""
    lines = enumerate(_complete_lines(log), start=1)
    return [number for number, line in lines if _parse(line) is None]


def _complete_lines(log: bytes) -> list[bytes]:
    # The chief may be writing the last line.
    return log.rpartition(b"\n")[0].split(b"\n") if b"\n" in log else []


def _parse(line: bytes) -> dict[str, Any] | None:
    """Parses a line; returns None if it is damaged."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict) or type(values.get("step")) is not int:
        return None
    if CHANGED in values:
        return values if isinstance(values[CHANGED], dict) else None
    figures = values
    if TIME in values:
        if not isinstance(values[TIME], dict) or values.get("at") is None:
            return None
        figures = {**values[TIME], "at": values["at"]}
    is_whole = all(figure is None or isinstance(figure, int | float) for figure in figures.values())
    return values if is_whole else None


def last_step(run_dir: str | Path) -> int:
    """Returns the last step in a run's log, 0 if there is none."""
    return max((line["step"] for line in read_log(run_dir)), default=0)
