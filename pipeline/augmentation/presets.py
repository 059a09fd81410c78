"""Augmentations by name: chains of ops for photos of receipts."""

from pipeline.augmentation.chain import Op
from pipeline.augmentation.corruption import Blur, Erase, JpegArtifacts, Noise
from pipeline.augmentation.geometric import Perspective, Rotate, Scale, Shear
from pipeline.augmentation.photometric import Brightness, Contrast, Gamma, Shadow, UnevenLight

WEAK: tuple[Op, ...] = (
    Rotate(),
    Scale(),
    Perspective(),
    Brightness(),
    Contrast(),
)
STRONG: tuple[Op, ...] = (
    Rotate(),
    Shear(),
    Scale(),
    Perspective(),
    Brightness(),
    Contrast(),
    Gamma(),
    UnevenLight(),
    Shadow(probability=0.5),
    Blur(probability=0.5),
    Noise(probability=0.5),
    JpegArtifacts(probability=0.5),
    Erase(probability=0.5),
)
AUGMENTATIONS: dict[str, tuple[Op, ...]] = {"none": (), "weak": WEAK, "strong": STRONG}
