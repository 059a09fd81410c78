"""tf.data over image files with a plain `map`, which has been its fastest on two cores."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers import tf_data_files
from benchmarks.peers.output import Output


def prepare(data_dir: str, folder: Path) -> None:
    """The files that the other one reads."""
    tf_data_files.prepare(data_dir, folder)


def batches(folder: Path, output: Output, *, workers: int) -> Iterator[Any]:
    """Batches of images that are decoded one after the other."""
    return iter(tf_data_files.made(folder, output, parallel_calls=None))
