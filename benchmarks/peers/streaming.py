"""MosaicML Streaming over MDS files, read by its DataLoader; decoded by OpenCV."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import streaming

from benchmarks.peers.opencv import decoded
from benchmarks.peers.output import Output
from benchmarks.peers.stored import stored_images

_COLUMNS = {"image": "bytes", "label": "int"}
_SHARD_BYTES = 1 << 26
_LONG_EPOCH = 200_000


def prepare(data_dir: str, folder: Path) -> None:
    """MDS shards; the column type "jpeg" would have Pillow decode."""
    with streaming.MDSWriter(out=str(folder), columns=_COLUMNS, size_limit=_SHARD_BYTES) as writer:
        for image in stored_images(data_dir):
            writer.write({"image": image.encoded, "label": image.label})


class _Images(streaming.StreamingDataset):
    def __init__(self, output: Output, **options: Any) -> None:
        super().__init__(**options)
        self._output = output

    def __getitem__(self, at: int) -> Any:
        sample = super().__getitem__(at)
        return self._output.of(decoded(sample["image"], self._output)), sample["label"]


def batches(folder: Path, output: Output, *, workers: int) -> Iterator[Any]:
    """Batches that the DataLoader's worker processes make.

    The epoch is a long one: small datasets would mostly be starting epochs.
    "fork" is how workers start by default, where this process was not spawned itself.
    """
    dataset = _Images(
        output,
        local=str(folder),
        shuffle=True,
        batch_size=output.batch_size,
        epoch_size=_LONG_EPOCH,
    )
    loader = streaming.StreamingDataLoader(
        dataset,
        batch_size=output.batch_size,
        num_workers=workers,
        drop_last=True,
        multiprocessing_context="fork",
    )
    return itertools.chain.from_iterable(itertools.repeat(loader))
