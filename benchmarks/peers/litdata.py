"""LitData over its optimized chunks, read by its DataLoader; decoded by OpenCV."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litdata

from benchmarks.peers.opencv import decoded
from benchmarks.peers.output import Output
from benchmarks.peers.stored import stored_images


def prepare(data_dir: str, folder: Path) -> None:
    """Chunks of 64 MB, the size that its documentation recommends."""
    litdata.optimize(
        _samples, [data_dir], output_dir=str(folder), chunk_bytes="64MB", num_workers=1
    )


def _samples(data_dir: str) -> Iterator[dict[str, Any]]:
    for image in stored_images(data_dir):
        yield {"image": image.encoded, "label": image.label}


class _Images(litdata.StreamingDataset):
    def __init__(self, output: Output, folder: Path) -> None:
        super().__init__(str(folder), shuffle=True, drop_last=True)
        self._output = output

    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        return self._output.of(decoded(sample["image"], self._output)), sample["label"]


def batches(folder: Path, output: Output, *, workers: int) -> Iterator[Any]:
    """Batches that the DataLoader's worker processes make, epoch by epoch.

    "fork" is how workers start by default, where this process was not spawned itself.
    """
    loader = litdata.StreamingDataLoader(
        _Images(output, folder),
        batch_size=output.batch_size,
        num_workers=workers,
        drop_last=True,
        multiprocessing_context="fork",
        persistent_workers=True,
    )
    return itertools.chain.from_iterable(itertools.repeat(loader))
