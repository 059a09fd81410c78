"""tillroll itself, through `strategy.distribute_datasets_from_function`.

It decodes a JPEG file at the smallest scale of libjpeg-turbo that has about as many pixels as the
output: less work than the peers do wherever an image is about twice the output's size.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness.contenders import Training, reader_of, training
from benchmarks.peers.output import Output
from pipeline.config import InputConfig

_DATASET = "dataset"


def prepare(data_dir: str, folder: Path) -> None:
    """The dataset directory is what it reads."""
    (folder / _DATASET).symlink_to(os.path.abspath(data_dir), target_is_directory=True)  # noqa: PTH100


def batches(folder: Path, output: Output, *, workers: int) -> Iterator[Any]:
    """Batches; tf.data counts its threads itself."""
    return training(_run(str(folder / _DATASET), output))


def reader(data_dir: str, output: Output) -> str:
    """Says in a sentence by which of its readers it makes the batches."""
    return reader_of(_run(data_dir, output))


def _run(data_dir: str, output: Output) -> Training:
    config = InputConfig(
        height=output.height,
        width=output.width,
        channels=output.channels,
        fit=output.fit,
        dtype=output.dtype,
    )
    return Training(data_dir=data_dir, config=config, batch_size=output.batch_size)
