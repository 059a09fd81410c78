"""Options of the input pipeline."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class InputConfig:
    """How records become elements.

    Attributes:
      height, width: size of the images in pixels; receipts are fitted into it on white padding.
      channels: 1 for greyscale, 3 for RGB.
      label: category whose id is the label.
      output: "tuple" for (image, label), as Keras' `fit` takes them, or "features" for a dict of
        "image", "label", "boxes" and "id".
      shuffle_buffer: records held in memory for shuffling.
      max_boxes: boxes of an element in "features"; further ones are left out.
    """

    height: int = 256
    width: int = 256
    channels: Literal[1, 3] = 3
    label: str = "layout"
    output: Literal["tuple", "features"] = "tuple"
    shuffle_buffer: int = 1024
    max_boxes: int = 256

    def __post_init__(self) -> None:
        for name in ("height", "width", "shuffle_buffer", "max_boxes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.channels not in (1, 3):
            raise ValueError(f"channels must be 1 (greyscale) or 3 (RGB), got {self.channels}")
        if self.output not in ("tuple", "features"):
            raise ValueError(f"output must be 'tuple' or 'features', got {self.output!r}")
