"""Augmentation of training images, boxes included: seeded, and inside `tf.data`."""

from typing import TYPE_CHECKING

from effdet_keras._internal.lazy_names import lazy_names
from effdet_keras.augment.augmentation import (  # noqa: F401
    Augmentation,
    Compose,
    FromNumPy,
    Sometimes,
)
from effdet_keras.augment.mixing import MixUp, Mosaic
from effdet_keras.augment.names import NAMES
from effdet_keras.augment.pixels import (  # noqa: F401
    Blur,
    CutOut,
    GridMask,
    JPEGNoise,
    PhotometricDistortion,
)
from effdet_keras.augment.warps import RandomCrop, Rotate, Shear  # noqa: F401

if TYPE_CHECKING:
    from effdet_keras.extras.policies import AutoAugment, RandAugment
    from effdet_keras.extras.tfod.preprocessing import PreprocessingStep

__all__ = [
    "NAMES",
    "Augmentation",
    "AutoAugment",
    "FromNumPy",
    "MixUp",
    "Mosaic",
    "PhotometricDistortion",
    "PreprocessingStep",
    "RandAugment",
    "RandomCrop",
    "Rotate",
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
