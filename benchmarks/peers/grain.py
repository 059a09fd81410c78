"""Grain over ArrayRecord files, as in its guide; images decoded by OpenCV.

https://google-grain.readthedocs.io/en/latest/tutorials/data_loader_tutorial.html
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np
import numpy.typing as npt
from array_record.python.array_record_module import ArrayRecordWriter

from benchmarks.peers.opencv import decoded
from benchmarks.peers.output import Output
from benchmarks.peers.stored import dealt

_LABEL_BYTES = 8
_READING = grain.ReadOptions(num_threads=2, prefetch_buffer_size=64)  # of each worker


def prepare(data_dir: str, folder: Path) -> None:
    """A record holds the label and the JPEG file; a group is one record, for random access."""
    for number, images in enumerate(dealt(data_dir)):
        writer = ArrayRecordWriter(str(folder / f"{number:05}.array_record"), "group_size:1")
        for image in images:
            writer.write(image.label.to_bytes(_LABEL_BYTES) + image.encoded)
        writer.close()


def batches(folder: Path, output: Output, *, workers: int) -> Iterator[Any]:
    """Batches from worker processes."""
    files = sorted(map(str, folder.glob("*.array_record")))

    def load(record: bytes) -> tuple[npt.NDArray[np.uint8], int]:
        label = int.from_bytes(record[:_LABEL_BYTES])
        return decoded(record[_LABEL_BYTES:], output), label

    dataset = (
        grain.MapDataset.source(grain.sources.ArrayRecordDataSource(files))
        .shuffle(seed=0)
        .repeat()
        .map(load)
        .to_iter_dataset(_READING)
        .batch(output.batch_size, drop_remainder=True)
        .map(lambda batch: (output.of(batch[0]), batch[1]))
        .mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    )
    return iter(dataset)
