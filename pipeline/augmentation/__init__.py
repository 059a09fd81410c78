"""Augmentation ops over batches of images and their boxes."""

from pipeline.augmentation.chain import Op as Op
from pipeline.augmentation.chain import augment as augment
from pipeline.augmentation.corruption import Blur as Blur
from pipeline.augmentation.corruption import Erase as Erase
from pipeline.augmentation.corruption import JpegArtifacts as JpegArtifacts
from pipeline.augmentation.corruption import Noise as Noise
from pipeline.augmentation.geometric import Perspective as Perspective
from pipeline.augmentation.geometric import RandomZoom as RandomZoom
from pipeline.augmentation.geometric import Rotate as Rotate
from pipeline.augmentation.geometric import Scale as Scale
from pipeline.augmentation.geometric import Shear as Shear
from pipeline.augmentation.photometric import Brightness as Brightness
from pipeline.augmentation.photometric import Contrast as Contrast
from pipeline.augmentation.photometric import Gamma as Gamma
from pipeline.augmentation.photometric import Shadow as Shadow
from pipeline.augmentation.photometric import UnevenLight as UnevenLight
