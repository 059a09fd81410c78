"""Reference images: a peer must show the receipts whole and at the right size, as all others do."""

import io
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from PIL import Image

from benchmarks.peers.output import Output
from benchmarks.peers.stored import Storage, StoredImage, read_manifest, storage, stored_images

_SIDE = 16
Pixels = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Reference:
    """The stored images as decoded by Pillow and scaled by NumPy.

    Attributes:
      data_dir: dataset directory.
      samples: some pixels of each image at the output's size, uint8 [n, rows, columns, channels].
      storage: how images are stored.
      output: the batches to be made of them.
    """

    data_dir: str
    samples: npt.NDArray[np.uint8]
    storage: Storage
    output: Output

    @classmethod
    def of(cls, data_dir: str, output: Output) -> Self:
        """Makes the reference of a dataset directory.

        Raises:
          FileNotFoundError: there is no dataset.
          ValueError: it has no records.
        """
        kept = storage(read_manifest(data_dir))
        samples = [_sample(expected(image, kept, output)) for image in stored_images(data_dir)]
        return cls(
            data_dir=data_dir,
            samples=np.stack(samples).round().astype(np.uint8),
            storage=kept,
            output=output,
        )

    def difference(self, batch: Any) -> float:
        """Mean absolute difference between a batch and the images it shows, in levels of 0…255.

        Raises:
          ValueError: the batch has another shape or type than was asked for.
        """
        found = np.asarray(batch)
        if found.shape != self.output.shape or found.dtype != self.output.dtype:
            raise ValueError(
                f"a batch is {found.dtype} {list(found.shape)}, "
                f"{self.output.dtype} {list(self.output.shape)} expected"
            )
        levels = found.astype(np.float32) * (255 if self.output.dtype == "float32" else 1)
        shown = [self._nearest(each) for each in levels]
        pixels = {
            number: expected(image, self.storage, self.output)
            for number, image in enumerate(stored_images(self.data_dir))
            if number in shown
        }
        return float(
            np.mean(
                [
                    np.abs(pixels[number] - each).mean()
                    for number, each in zip(shown, levels, strict=True)
                ]
            )
        )

    def _nearest(self, levels: Pixels) -> int:
        """Returns the position of the image that is nearest, by the sampled pixels."""
        return int(np.abs(self.samples - _sample(levels)).mean(axis=(1, 2, 3)).argmin())


def expected(image: StoredImage, kept: Storage, output: Output) -> Pixels:
    """A stored image at the output's size, in levels, float32 [height, width, channels]."""
    if kept == "raw":
        shape = (image.height, image.width, image.channels)
        pixels = np.frombuffer(image.encoded, np.uint8).reshape(shape)
    else:
        with Image.open(io.BytesIO(image.encoded)) as opened:
            pixels = np.asarray(opened.convert("RGB" if output.channels == 3 else "L"))
            pixels = pixels.reshape(*pixels.shape[:2], output.channels)
    height, width = output.inner(*pixels.shape[:2])
    scaled = _bilinear(_bilinear(pixels.astype(np.float32), height, 0), width, 1)
    missing = (output.height - height, output.width - width)
    sides = [(each // 2, each - each // 2) for each in missing]
    return np.pad(scaled, [*sides, (0, 0)], constant_values=255)


def _bilinear(pixels: Pixels, size: int, axis: int) -> Pixels:
    """Scales an axis by linear interpolation between centers of pixels, without smoothing."""
    last = pixels.shape[axis] - 1
    centers = np.clip((np.arange(size) + 0.5) * (last + 1) / size - 0.5, 0, last)
    before = centers.astype(np.int64)
    share = (centers - before).astype(np.float32).reshape([-1, *[1] * (2 - axis)])
    left = pixels.take(before, axis)
    return left + share * (pixels.take(np.minimum(before + 1, last), axis) - left)


def _sample(pixels: Pixels) -> Pixels:
    rows, columns = (
        np.linspace(0, size - 1, min(size, _SIDE)).astype(np.int64) for size in pixels.shape[:2]
    )
    return pixels[rows][:, columns]
