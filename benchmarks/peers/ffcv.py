"""FFCV over a .beton file of JPEG files or of pixels, as its documentation recommends.

It has no wheel: it is compiled against OpenCV and libturbojpeg of the system. It scales by area
(OpenCV's INTER_AREA), which can't be changed.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder
from ffcv.fields.rgb_image import (
    IMAGE_MODES,
    ResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from ffcv.loader import Loader, OrderOption
from ffcv.reader import Reader
from ffcv.transforms import NormalizeImage, ToTensor
from ffcv.writer import DatasetWriter

from benchmarks.peers.output import Output
from benchmarks.peers.stored import read_manifest, storage, stored_images

_LONG_EPOCH = 200_000


class _Stored(RGBImageField):
    """Images as they are stored: FFCV's own field would encode JPEG files anew."""

    def encode(self, destination: Any, image: Any, malloc: Any) -> None:
        destination["mode"] = IMAGE_MODES[self.write_mode]
        destination["height"], destination["width"] = image.height, image.width
        destination["data_ptr"], place = malloc(len(image.encoded))
        place[:] = np.frombuffer(image.encoded, np.uint8)


class _Stretched(ResizedCropRGBImageDecoder):
    """The whole image, at the output's size."""

    scale = ratio = None

    @property
    def get_crop_generator(self) -> Callable[..., tuple[int, int, int, int]]:
        return lambda height, width, scale, ratio: (0, 0, height, width)


def prepare(data_dir: str, folder: Path) -> None:
    """One file; pixels where the dataset has pixels."""
    mode = "raw" if storage(read_manifest(data_dir)) == "raw" else "jpg"
    fields = {"image": _Stored(write_mode=mode), "label": IntField()}
    images = [(image, image.label) for image in stored_images(data_dir)]
    writer = DatasetWriter(str(folder / f"{mode}.beton"), fields, num_workers=1)
    writer.from_indexed_dataset(images)


def batches(folder: Path, output: Output, *, workers: int) -> Iterator[Any]:
    """Batches of its threads.

    The epoch is a long one: small datasets would mostly be starting epochs.
    """
    [file] = folder.iterdir()
    stretched = _Stretched((output.height, output.width))
    image = [SimpleRGBImageDecoder() if file.stem == "raw" else stretched]
    if output.dtype == "float32":
        image.append(NormalizeImage(np.zeros(3), np.full(3, 255.0), np.float32))
    options = {
        "batch_size": output.batch_size,
        "num_workers": min(workers, len(os.sched_getaffinity(0))),  # it refuses more
        "os_cache": True,
        "order": OrderOption.RANDOM,
        "custom_fields": {"image": _Stored},
        "pipelines": {"image": [*image, ToTensor()], "label": [IntDecoder(), ToTensor()]},
    }
    records = int(Reader(str(file), options["custom_fields"]).num_samples)
    indices = np.tile(np.arange(records), -(-_LONG_EPOCH // records))
    loader = Loader(str(file), indices=indices, **options)
    return itertools.chain.from_iterable(itertools.repeat(loader))
