"""tf.data over image files with a plain `map`, which tf.data itself makes parallel."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers import tf_data_files
from benchmarks.peers.output import Output


def prepare(data_dir: str, folder: Path) -> None:
    """The files that the other one reads."""
    tf_data_files.prepare(data_dir, folder)


def batches(folder: Path, output: Output, *, workers: int) -> Iterator[Any]:
    """Batches of as many images at a time as tf.data chooses, whatever `workers` is."""
    return iter(tf_data_files.made(folder, output, parallel_calls=None))
