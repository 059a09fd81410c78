"""WebDataset over tar files, as its documentation recommends for training; decoded by OpenCV."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import webdataset
from torch.utils.data import default_collate

from benchmarks.peers.opencv import decoded
from benchmarks.peers.output import Output
from benchmarks.peers.stored import dealt

_SHUFFLE_BUFFER = 1000


def prepare(data_dir: str, folder: Path) -> None:
    """Tar files with a .jpg and a .cls for each image."""
    for number, images in enumerate(dealt(data_dir)):
        with webdataset.TarWriter(str(folder / f"{number:05}.tar")) as writer:
            for position, image in enumerate(images):
                key = f"{number:05}{position:07}"
                writer.write({"__key__": key, "jpg": image.encoded, "cls": image.label})


def batches(folder: Path, output: Output, *, workers: int) -> Iterator[Any]:
    """Batches that the DataLoader's worker processes make; shards are drawn without an end.

    "fork" is how they start by default, where this process was not spawned itself.
    """
    files = sorted(map(str, folder.glob("*.tar")))

    def load(sample: dict[str, bytes]) -> tuple[Any, int]:
        return output.of(decoded(sample["jpg"], output)), int(sample["cls"])

    dataset = (
        webdataset.WebDataset(files, resampled=True, shardshuffle=False)
        .shuffle(_SHUFFLE_BUFFER)
        .map(load)
        .batched(output.batch_size, collation_fn=default_collate, partial=False)
    )
    loader = webdataset.WebLoader(
        dataset, batch_size=None, num_workers=workers, multiprocessing_context="fork"
    )
    return iter(loader)
