"""The folder of a training run: options, a log of JSON lines, TensorBoard's files and a plot."""

import io
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
from pipeline.records.file_systems import load_file_system
from pipeline.records.files import is_remote
from pipeline.training.ledger import Ledger
from pipeline.training.run_claim import RunClaim
from pipeline.training.run_files import STORES, LocalFiles, RunFiles, StoreFiles, store_errors
from pipeline.training.run_identity import UPDATE_OPTIONS, Change
from pipeline.training.run_lock import RunLock
from pipeline.training.run_log import CHANGED, LOG, TIME, log_lines, unreadable_lines

OPTIONS, PLOT, LAYOUTS = "options.json", "plot.png", "layouts.csv"
CHECKPOINTS, BEST, TENSORBOARD = "checkpoints", "best", "tensorboard"
_MANY = 1 << 30
_ENDED = "ended"
# What `pipeline.export` and a warm start need of the options.
_NEEDED = {"data_dir": str, "task": str, "model": dict}


class RunFolder:
    """Writes the files of a run, on its chief; other workers write nothing.

    Attributes:
      path: the folder, on this machine or in an object store.
      is_chief: True on the worker that writes.
    """

    def __init__(self, path: str, *, is_chief: bool = True) -> None:
        """Makes the folder, and locks it against other trainers until it is closed.

        Raises:
          ValueError: it can't be written to, or lies in a store that can't hold it.
          RunFolderInUseError: another process trains in it.
          StoreError: its store refuses or can't be reached.
        """
        self.path = path
        self.is_chief = is_chief
        self._is_remote = is_remote(path)
        if self._is_remote:
            _check_store(path)
        self._files: RunFiles = StoreFiles(path) if self._is_remote else LocalFiles(path)
        self._claim: RunClaim | None = None
        self._is_ours = True
        if is_chief:
            if self._is_remote:
                self._claim = RunClaim(path)
            else:
                self._lock = _lock(path)
                self._drop_cut_line()
            self._writer = self._make_writer()

    def close(self) -> None:
        """Writes what is not written yet, and releases the lock on the folder."""
        if not self.is_chief or not self._is_ours:
            return
        with store_errors(self.path, missing=True):
            self._files.flush()
            self._writer.close()
            if self._claim:
                self._claim.release()
            else:
                self._lock.release()

    def abandon(self) -> None:
        """Writes nothing any more: another process has the folder, or its store is gone."""
        self._is_ours = False

    def is_taken(self) -> bool:
        """Tells whether another process has taken the folder over, which a lock would prevent."""
        return self._claim is not None and self._claim.is_lost()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def flush(self) -> None:
        """Writes the lines of the log that a store does not have yet.

        Before a checkpoint, as the lines of its steps do not come again.
        """
        if self.is_chief:
            self._files.flush()

    def begin(self, step: int) -> None:
        """Makes TensorBoard drop what was logged after the step from which the run goes on."""
        if not self.is_chief:
            return
        start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
        event = tf.compat.v1.Event(step=step + 1, session_log=start)
        # TensorFlow 2 has no public way to write this event.
        tf.raw_ops.ImportEvent(writer=self._writer._resource, event=event.SerializeToString())

    def read_options(self) -> dict[str, Any]:
        """Reads the options of the command that trained here last; none if there was no other.

        Raises:
          ValueError: the file is damaged.
        """
        text = self._files.read(OPTIONS)
        if text is None:
            return {}
        try:
            options = dict(json.loads(text))
            damaged = [name for name, kind in _NEEDED.items() if type(options[name]) is not kind]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            damaged = [repr(error)]
        if damaged:
            raise ValueError(
                f"{os.path.join(self.path, OPTIONS)} is damaged ({', '.join(damaged)}): "
                "pipeline.train writes it anew when the run goes on"
            )
        return options

    def unreadable_lines(self) -> list[int]:
        """Numbers, from 1 on, of the lines of the log that can't be read and are left out."""
        return unreadable_lines(self._files.read(LOG) or b"")

    def write_options(self, options: Mapping[str, Any]) -> None:
        """Writes the options of the command."""
        if self.is_chief:
            text = json.dumps(options, indent=1, sort_keys=True, default=str)
            self._files.replace(OPTIONS, (text + "\n").encode())

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
        self._flush_writer()

    def log_changes(self, step: int, changes: Sequence[Change]) -> None:
        """Appends a line with the options that change at a step, unless the log has it already.

        The line replaces those of earlier starts from that step: none of them came to a checkpoint,
        or the run would not start there again.
        """
        if not self.is_chief:
            return
        now = {change.name: [change.then, change.now] for change in changes}
        later = [line for line in self._lines() if line["step"] >= step]
        logged = [line[CHANGED] for line in later if line.get(CHANGED)]
        if logged != ([now] if now else []):
            self._append({"step": step, CHANGED: now})

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
        self._append({"step": step, TIME: rounded, "at": round(at, 3), **end})
        with self._writer.as_default(step=step):
            for category, value in seconds.items():
                tf.summary.scalar(f"{TIME}/{category}", value)
        self._flush_writer()
        if self._is_remote:
            self._files.flush()
            # TensorBoard's figures begin a new file, as flushing one writes all of it again.
            with store_errors(self.path, missing=True):
                self._writer.close()
            self._writer = self._make_writer()

    def carry_on(self, step: int, ledger: Ledger) -> None:
        """Adds to a ledger the time until a step, as the log has it from earlier processes."""
        lines = [line for line in self._lines() if TIME in line and line["step"] <= step]
        if lines:
            ledger.carry_on(lines[-1][TIME], None if _ENDED in lines[-1] else lines[-1]["at"])

    def lines(self) -> list[dict[str, float]]:
        """Reads the figures of the log; steps that were repeated after a kill appear once.

        Values that were not finite are NaN.
        """
        return [
            {name: math.nan if value is None else value for name, value in line.items()}
            for line in self._lines()
            if CHANGED not in line and TIME not in line
        ]

    def evaluations(self) -> dict[int, float]:
        """Reads the losses of evaluations by step, as far back as they can be compared.

        Losses of another split, or from before training went on with other data, can't be compared.
        """
        losses: dict[int, float] = {}
        for line in self._lines():
            if not set(UPDATE_OPTIONS).issuperset(line.get(CHANGED, ())):
                losses.clear()
            if "validation/loss" in line:
                loss = line["validation/loss"]
                losses[line["step"]] = math.nan if loss is None else loss
        return losses

    def _append(self, line: Mapping[str, Any]) -> None:
        self._files.append(LOG, (json.dumps(line, allow_nan=False) + "\n").encode())

    def _lines(self) -> list[dict[str, Any]]:
        return log_lines(self._files.read(LOG) or b"")

    def _drop_cut_line(self) -> None:
        """Shortens the log to whole lines: a kill may have cut the last one."""
        path = Path(self.path, LOG)
        if path.exists():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)

    def write_layouts(self, table: str) -> None:
        """Writes the table of layouts of the newest evaluation."""
        if self.is_chief:
            self._files.replace(LAYOUTS, table.encode())

    def picture(self, step: int, name: str, picture: npt.NDArray[np.uint8]) -> None:
        """Writes a picture, uint8 [height, width, 3], beside the log and for TensorBoard."""
        if not self.is_chief:
            return
        self._files.replace(f"{name}.png", tf.io.encode_png(picture).numpy())
        with self._writer.as_default(step=step):
            tf.summary.image(f"validation/{name}", picture[None])
        self._flush_writer()

    def plot(self) -> None:
        """Draws losses and metrics."""
        if self.is_chief:
            picture = io.BytesIO()
            draw_curves(self.lines(), Path(self.path).name, picture)
            self._files.replace(PLOT, picture.getvalue())

    def _make_writer(self) -> tf.summary.SummaryWriter:
        folder = os.path.join(self.path, TENSORBOARD)
        if not self._is_remote:
            return tf.summary.create_file_writer(folder)
        # It would write all of its object again after every tenth figure.
        with store_errors(self.path, missing=True):
            return tf.summary.create_file_writer(folder, max_queue=_MANY, flush_millis=_MANY)

    def _flush_writer(self) -> None:
        if not self._is_remote:
            self._writer.flush()


def _check_store(path: str) -> None:
    scheme = path.partition("://")[0]
    if scheme not in STORES:
        raise ValueError(
            f"run folder {path!r} can't lie in {scheme}://: choose a folder of this machine, "
            f"or one in {' or '.join(f'{store}://' for store in STORES)}"
        )
    load_file_system(path)


def _lock(path: str) -> RunLock:
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        return RunLock(path)
    except OSError as error:
        raise ValueError(
            f"run folder {path!r} can't be written to ({error.strerror}): choose another one"
        ) from error
