"""The ceiling of a machine: libjpeg-turbo and a resize in a few processes, and nothing else.

Files are in memory before the first batch, and pixels are written where they are read.
"""

import itertools
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg

from benchmarks.peers.opencv import resized
from benchmarks.peers.output import Output
from benchmarks.peers.stored import stored_images

_BATCHES_AHEAD = 2


def prepare(data_dir: str, folder: Path, *, count: int | None = None) -> None:
    """Writes a file for each image, or for the first so many, named by number and label."""
    for number, image in enumerate(itertools.islice(stored_images(data_dir), count)):
        (folder / f"{number:07}-{image.label}.jpg").write_bytes(image.encoded)


def batches(folder: Path, output: Output, *, workers: int) -> Iterator[Any]:
    """Yields batches of each process in turn, in memory that is used again."""
    context = multiprocessing.get_context("spawn")
    lanes = []
    for number in range(workers):
        memory = [context.RawArray("B", _bytes_of(output)) for _ in range(_BATCHES_AHEAD)]
        free, full = context.SimpleQueue(), context.SimpleQueue()
        for place in range(_BATCHES_AHEAD):
            free.put(place)
        arguments = (folder, output, number, workers, memory, free, full)
        context.Process(target=_fill, args=arguments, daemon=True).start()
        lanes.append((memory, free, full))
    for memory, free, full in itertools.cycle(lanes):
        place, labels = full.get()
        yield _array(memory[place], output), labels
        free.put(place)


def _fill(
    folder: Path, output: Output, number: int, workers: int, memory: Any, free: Any, full: Any
) -> None:
    paths = sorted(folder.iterdir())[number::workers] or sorted(folder.iterdir())
    images = [(path.read_bytes(), int(path.stem.partition("-")[2])) for path in paths]
    color = "RGB" if output.channels == 3 else "GRAY"
    order = np.random.default_rng(number)
    while True:
        place = free.get()
        batch = _array(memory[place], output)
        chosen = order.integers(len(images), size=output.batch_size)
        for row, each in enumerate(chosen):
            pixels = simplejpeg.decode_jpeg(images[each][0], color, fastdct=True)
            scale = np.float32(1 / 255) if output.dtype == "float32" else np.uint8(1)
            np.multiply(resized(pixels, output), scale, out=batch[row])
        full.put((place, [images[each][1] for each in chosen]))


def _bytes_of(output: Output) -> int:
    return int(np.prod(output.shape)) * np.dtype(output.dtype).itemsize


def _array(memory: Any, output: Output) -> Any:
    return np.frombuffer(memory, output.dtype).reshape(output.shape)
