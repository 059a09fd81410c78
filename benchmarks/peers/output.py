"""The batches that every peer has to make of the stored images."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Output:
    """Batches of images, [batch_size, height, width, channels].

    Attributes:
      batch_size: images of a batch.
      height, width: pixels.
      channels: 1 for grayscale, 3 for RGB.
      fit: images keep their proportions on white padding ("pad"), or are stretched.
      dtype: "float32" in 0…1, or "uint8".
    """

    batch_size: int = 32
    height: int = 256
    width: int = 256
    channels: Literal[1, 3] = 3
    fit: Literal["pad", "stretch"] = "pad"
    dtype: Literal["float32", "uint8"] = "float32"

    def __post_init__(self) -> None:
        for name in ("batch_size", "height", "width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of a batch."""
        return self.batch_size, self.height, self.width, self.channels

    def inner(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) that an image gets; it lies in the middle."""
        if self.fit == "stretch":
            return self.height, self.width
        scale = min(self.height / height, self.width / width)
        return max(1, round(height * scale)), max(1, round(width * scale))

    def of(self, pixels: Any) -> Any:
        """Pixels, uint8 in NumPy or PyTorch, in the wanted type."""
        if self.dtype == "uint8":
            return pixels
        if isinstance(pixels, np.ndarray):
            return np.multiply(pixels, np.float32(1 / 255), dtype=np.float32)
        return pixels.float().div_(255)
