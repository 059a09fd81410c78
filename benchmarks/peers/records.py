"""tillroll's `Records`, `BatchSampler` and `decode_image` in PyTorch's DataLoader.

`benchmarks.peers.tillroll` makes the same batches with TensorFlow.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import DataLoader, Dataset

from benchmarks.peers.output import Output
from benchmarks.peers.stored import SPLIT
from pipeline import BatchSampler, Records, decode_image

_DATASET = "dataset"


def prepare(data_dir: str, folder: Path) -> None:
    """The dataset directory is what it reads."""
    (folder / _DATASET).symlink_to(os.path.abspath(data_dir), target_is_directory=True)  # noqa: PTH100


class _Images(Dataset[Any]):
    def __init__(self, records: Records, output: Output) -> None:
        self._records, self._output = records, output

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, position: int) -> tuple[npt.NDArray[Any], np.int64]:
        record, output = self._records[position], self._output
        pixels = decode_image(
            record["image/encoded"],
            height=output.height,
            width=output.width,
            channels=output.channels,
            fit=output.fit,
        )
        return output.of(pixels), record["receipt/layout_id"]


def batches(folder: Path, output: Output, *, workers: int) -> Iterator[Any]:
    """Batches that the DataLoader's worker processes make.

    "fork" is how they start by default, where this process was not spawned itself.
    """
    records = Records(folder / _DATASET, SPLIT)
    loader = DataLoader(
        _Images(records, output),
        batch_sampler=BatchSampler(records, global_batch_size=output.batch_size),
        num_workers=workers,
        multiprocessing_context="fork",
    )
    return iter(loader)
