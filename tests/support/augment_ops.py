"""All augmentation ops and a small batch, for the tests."""

import numpy as np

from pipeline.augmentation.corruption import Blur, Erase, JpegArtifacts, Noise
from pipeline.augmentation.geometric import Perspective, RandomZoom, Rotate, Scale, Shear
from pipeline.augmentation.photometric import Brightness, Contrast, Gamma, Shadow, UnevenLight

GEOMETRIC = (Rotate, Shear, Scale, Perspective, RandomZoom)
PHOTOMETRIC = (Brightness, Contrast, Gamma, UnevenLight, Shadow, Blur, Noise, JpegArtifacts, Erase)
OPS = GEOMETRIC + PHOTOMETRIC


def batch(count: int, *, height: int = 16, width: int = 24, channels: int = 3) -> dict:
    """Random pixels, as many boxes as fit, a row without one; NumPy arrays, "seeds" among them."""
    rng = np.random.default_rng(count)
    corners = rng.uniform(0, 0.7, (count, 5, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(0.1, 0.3, corners.shape)], axis=2)
    boxes[:, -1] = 0
    return {
        "image": rng.integers(0, 256, (count, height, width, channels), dtype=np.uint8),
        "boxes": boxes.astype(np.float32),
        "seeds": rng.integers(0, 2**32, count),
    }
