"""Augmentation of training images, boxes included: seeded, and inside `tf.data`."""

from typing import TYPE_CHECKING

from effdet_keras._internal.lazy_names import lazy_names
from effdet_keras.augment.augmentation import Augmentation
from effdet_keras.augment.colors import Blur, JPEGNoise, PhotometricDistortion
from effdet_keras.augment.compose import Compose, Sometimes
from effdet_keras.augment.from_numpy import FromNumPy
from effdet_keras.augment.holes import CutOut, GridMask
from effdet_keras.augment.mixing import MixUp, Mosaic
from effdet_keras.augment.names import NAMES
from effdet_keras.augment.warps import RandomCrop, Rotate, Shear

if TYPE_CHECKING:
    from effdet_keras.extras.policies import AutoAugment, RandAugment
    from effdet_keras.extras.tfod.preprocessing import PreprocessingStep

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

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "AutoAugment": "extras.policies",
            "RandAugment": "extras.policies",
            "PreprocessingStep": "extras.tfod.preprocessing",
        },
    )
