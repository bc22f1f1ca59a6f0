"""Augmentation of training images, boxes included: seeded, and inside `tf.data`."""

from effdet_keras.augment.augmentation import Augmentation
from effdet_keras.augment.auto_augment import AutoAugment
from effdet_keras.augment.blur import Blur
from effdet_keras.augment.compose import Compose, Sometimes
from effdet_keras.augment.cut_out import CutOut
from effdet_keras.augment.from_numpy import FromNumPy
from effdet_keras.augment.grid_mask import GridMask
from effdet_keras.augment.jpeg_noise import JPEGNoise
from effdet_keras.augment.mix_up import MixUp
from effdet_keras.augment.mosaic import Mosaic
from effdet_keras.augment.names import NAMES
from effdet_keras.augment.photometric_distortion import PhotometricDistortion
from effdet_keras.augment.preprocessing import PreprocessingStep
from effdet_keras.augment.rand_augment import RandAugment
from effdet_keras.augment.random_crop import RandomCrop
from effdet_keras.augment.rotate import Rotate
from effdet_keras.augment.shear import Shear

__all__ = [
    "NAMES",
    "Augmentation",
    "AutoAugment",
    "Blur",
    "Compose",
    "CutOut",
    "FromNumPy",
    "GridMask",
    "JPEGNoise",
    "MixUp",
    "Mosaic",
    "PhotometricDistortion",
    "PreprocessingStep",
    "RandAugment",
    "RandomCrop",
    "Rotate",
    "Shear",
    "Sometimes",
]
