"""The folder of a training run: options, a log of JSON lines, TensorBoard's files and a plot."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline.curves import draw_curves

OPTIONS, LOG, PLOT, LAYOUTS = "options.json", "log.jsonl", "plot.png", "layouts.csv"
CHECKPOINTS, BEST, TENSORBOARD = "checkpoints", "best", "tensorboard"


class RunFolder:
    """Writes what a run did, on its chief; other workers write nothing.

    Attributes:
      path: the folder, on this machine.
      is_chief: whether this worker writes.
    """

    def __init__(self, path: str, *, is_chief: bool = True) -> None:
        """Makes the folder.

        Raises:
          ValueError: it lies in an object store, where a log can't grow line by line.
        """
        if "://" in path:
            raise ValueError(
                f"run folder {path!r} is not on a file system of this machine: choose a folder of "
                "it, or one that is mounted"
            )
        self.path = path
        self.is_chief = is_chief
        if is_chief:
            Path(path).mkdir(parents=True, exist_ok=True)
            self._drop_cut_line()
            self._writer = tf.summary.create_file_writer(os.path.join(path, TENSORBOARD))

    def write_options(self, options: Mapping[str, Any]) -> None:
        """Writes what was asked for."""
        if self.is_chief:
            text = json.dumps(options, indent=1, sort_keys=True, default=str)
            Path(self.path, OPTIONS).write_text(text + "\n")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Appends a line to the log, and the same to TensorBoard's."""
        if not self.is_chief:
            return
        with Path(self.path, LOG).open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")
        with self._writer.as_default(step=step):
            for name, value in values.items():
                # TensorBoard groups by what is before the first slash.
                tf.summary.scalar(name if "/" in name else f"training/{name}", value)
        self._writer.flush()

    def lines(self) -> list[dict[str, float]]:
        """The log; of steps that were taken again after a kill, the last time."""
        path = Path(self.path, LOG)
        if not path.exists():
            return []
        # The chief may be at the last line.
        complete = path.read_text().rpartition("\n")[0].splitlines()
        kept: list[dict[str, float]] = []
        for line in map(json.loads, complete):
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
        """Writes the newest evaluation, layout by layout."""
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
