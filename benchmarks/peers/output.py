"""What every peer has to make of the stored images."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Output:
    """Batches of images, [batch_size, height, width, channels], stretched to their size.

    Attributes:
      batch_size: images of a batch.
      height, width: pixels.
      channels: 1 for greyscale, 3 for RGB.
      dtype: "float32" in 0…1, or "uint8".
    """

    batch_size: int = 32
    height: int = 256
    width: int = 256
    channels: Literal[1, 3] = 3
    dtype: Literal["float32", "uint8"] = "float32"

    def __post_init__(self) -> None:
        for name in ("batch_size", "height", "width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of a batch."""
        return self.batch_size, self.height, self.width, self.channels

    def of(self, pixels: Any) -> Any:
        """Pixels, uint8 in NumPy or PyTorch, in the wanted type."""
        if self.dtype == "uint8":
            return pixels
        if isinstance(pixels, np.ndarray):
            return np.multiply(pixels, np.float32(1 / 255), dtype=np.float32)
        return pixels.float().div_(255)
