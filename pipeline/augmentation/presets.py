"""Augmentations by name."""

from pipeline.augmentation.chain import Op
from pipeline.augmentation.corruption import Blur, Erase, JpegArtefacts, Noise
from pipeline.augmentation.geometric import Perspective, Rotate, Scale, Shear
from pipeline.augmentation.photometric import Brightness, Contrast, Gamma, Light, Shadow

LIGHT: tuple[Op, ...] = (Rotate(), Scale(), Perspective(), Brightness(), Contrast())
STRONG: tuple[Op, ...] = (
    *(Rotate(), Shear(), Scale(), Perspective()),
    *(Brightness(), Contrast(), Gamma(), Light(), Shadow(probability=0.5)),
    *(Blur(probability=0.5), Noise(probability=0.5), JpegArtefacts(probability=0.5)),
    Erase(probability=0.5),
)
AUGMENTATIONS: dict[str, tuple[Op, ...]] = {"none": (), "light": LIGHT, "strong": STRONG}
