"""The folder of a training run: options, a log of JSON lines, TensorBoard's files and a plot."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline.plots.curves import draw_curves
from pipeline.training.ledger import Ledger
from pipeline.training.run_identity import UPDATE_OPTIONS, Change
from pipeline.training.run_lock import RunLock

OPTIONS, LOG, PLOT, LAYOUTS = "options.json", "log.jsonl", "plot.png", "layouts.csv"
CHECKPOINTS, BEST, TENSORBOARD = "checkpoints", "best", "tensorboard"
_CHANGED, _TIME, _ENDED = "changed", "time", "ended"


class RunFolder:
    """Writes the files of a run, on its chief; other workers write nothing.

    Attributes:
      path: the folder, on this machine.
      is_chief: True on the worker that writes.
    """

    def __init__(self, path: str, *, is_chief: bool = True) -> None:
        """Makes the folder, and locks it against other trainers until it is closed.

        Raises:
          ValueError: the folder lies in an object store, where a log can't grow line by line, or it
            can't be written to.
          RunFolderInUseError: another process trains in it.
        """
        if "://" in path:
            raise ValueError(
                f"run folder {path!r} is not on a file system of this machine: choose a folder of "
                "it, or one that is mounted"
            )
        self.path = path
        self.is_chief = is_chief
        if is_chief:
            try:
                Path(path).mkdir(parents=True, exist_ok=True)
                self._lock = RunLock(path)
            except OSError as error:
                raise ValueError(
                    f"run folder {path!r} can't be written to ({error.strerror}): choose another "
                    "one"
                ) from error
            self._drop_cut_line()
            self._writer = tf.summary.create_file_writer(os.path.join(path, TENSORBOARD))

    def close(self) -> None:
        """Releases the lock on the folder."""
        if self.is_chief:
            self._writer.close()
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, step: int) -> None:
        """Makes TensorBoard drop what was logged after the step from which the run goes on."""
        if not self.is_chief:
            return
        start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
        event = tf.compat.v1.Event(step=step + 1, session_log=start)
        # TensorFlow 2 has no public way to write this event.
        tf.raw_ops.ImportEvent(writer=self._writer._resource, event=event.SerializeToString())

    def read_options(self) -> dict[str, Any]:
        """Reads the options of the command that trained here last; none if there was no other."""
        path = Path(self.path, OPTIONS)
        options: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return options

    def write_options(self, options: Mapping[str, Any]) -> None:
        """Writes the options of the command."""
        if self.is_chief:
            text = json.dumps(options, indent=1, sort_keys=True, default=str)
            self._replace(OPTIONS, (text + "\n").encode())

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Appends a line to the log, and the same to TensorBoard's.

        JSON has no NaN and no infinity: the log says null instead.
        """
        if not self.is_chief:
            return
        finite = {name: each if math.isfinite(each) else None for name, each in values.items()}
        self._append({"step": step, **finite})
        with self._writer.as_default(step=step):
            for name, value in values.items():
                # TensorBoard groups by what is before the first slash.
                tf.summary.scalar(name if "/" in name else f"training/{name}", value)
        self._writer.flush()

    def log_changes(self, step: int, changes: Sequence[Change]) -> None:
        """Appends a line with the options that change at a step, unless the log has it already.

        The line replaces those of earlier starts from that step: none of them came to a checkpoint,
        or the run would not start there again.
        """
        if not self.is_chief:
            return
        now = {change.name: [change.then, change.now] for change in changes}
        later = [line for line in self._lines() if line["step"] >= step]
        logged = [line[_CHANGED] for line in later if line.get(_CHANGED)]
        if logged != ([now] if now else []):
            self._append({"step": step, _CHANGED: now})

    def log_time(self, step: int, ledger: Ledger, *, ended: bool = False) -> None:
        """Appends a line with what the run's time was spent on, and the same to TensorBoard's.

        Args:
          step: steps done.
          ledger: the time.
          ended: the run has come to its end: what is between this and a later start is not lost.
        """
        if not self.is_chief:
            return
        seconds, at = ledger.so_far()
        rounded = {category: round(value, 3) for category, value in seconds.items()}
        end = {_ENDED: True} if ended else {}
        self._append({"step": step, _TIME: rounded, "at": round(at, 3), **end})
        with self._writer.as_default(step=step):
            for category, value in seconds.items():
                tf.summary.scalar(f"{_TIME}/{category}", value)
        self._writer.flush()

    def carry_on(self, step: int, ledger: Ledger) -> None:
        """Adds to a ledger the time until a step, as the log has it from earlier processes."""
        lines = [line for line in self._lines() if _TIME in line and line["step"] <= step]
        if lines:
            ledger.carry_on(lines[-1][_TIME], None if _ENDED in lines[-1] else lines[-1]["at"])

    def lines(self) -> list[dict[str, float]]:
        """Reads the figures of the log; steps that were repeated after a kill appear once.

        Values that were not finite are NaN.
        """
        return [
            {name: math.nan if value is None else value for name, value in line.items()}
            for line in self._lines()
            if _CHANGED not in line and _TIME not in line
        ]

    def evaluations(self) -> dict[int, float]:
        """Reads the losses of evaluations by step, as far back as they can be compared.

        Losses of another split, or from before training went on with other data, can't be compared.
        """
        losses: dict[int, float] = {}
        for line in self._lines():
            if not set(UPDATE_OPTIONS).issuperset(line.get(_CHANGED, ())):
                losses.clear()
            if "validation/loss" in line:
                loss = line["validation/loss"]
                losses[line["step"]] = math.nan if loss is None else loss
        return losses

    def _append(self, line: Mapping[str, Any]) -> None:
        with Path(self.path, LOG).open("a") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")

    def _lines(self) -> list[dict[str, Any]]:
        path = Path(self.path, LOG)
        if not path.exists():
            return []
        # The chief may be writing the last line.
        complete = path.read_text().rpartition("\n")[0].splitlines()
        kept: list[dict[str, Any]] = []
        for line in map(json.loads, complete):
            # A run that was killed at step 250 and went on from 200 has logged 201 to 250 twice: of
            # each, the later line counts. A line of changes replaces the one of an earlier start
            # from that step, and all behind it.
            if _CHANGED in line:
                again = [_CHANGED in other and other["step"] >= line["step"] for other in kept]
                if any(again):
                    del kept[again.index(True) :]
            # The line of a step's loss comes before that of its evaluation.
            first_again = line["step"] if "loss" in line else line["step"] + 1
            while kept and kept[-1]["step"] >= first_again:
                kept.pop()
            kept.append(line)
        return kept

    def _drop_cut_line(self) -> None:
        """Shortens the log to whole lines: a kill may have cut the last one."""
        path = Path(self.path, LOG)
        if path.exists():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)

    def write_layouts(self, table: str) -> None:
        """Writes the table of layouts of the newest evaluation."""
        if self.is_chief:
            self._replace(LAYOUTS, table.encode())

    def picture(self, step: int, name: str, picture: npt.NDArray[np.uint8]) -> None:
        """Writes a picture, uint8 [height, width, 3], beside the log and for TensorBoard."""
        if not self.is_chief:
            return
        self._replace(f"{name}.png", tf.io.encode_png(picture).numpy())
        with self._writer.as_default(step=step):
            tf.summary.image(f"validation/{name}", picture[None])
        self._writer.flush()

    def plot(self) -> None:
        """Draws losses and metrics."""
        if self.is_chief:
            draw_curves(self.lines(), Path(self.path).name, Path(self.path, PLOT))

    def _replace(self, name: str, data: bytes) -> None:
        partial = Path(self.path, f"{name}.partial")
        partial.write_bytes(data)
        partial.replace(Path(self.path, name))
